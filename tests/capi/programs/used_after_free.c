/* A mistake that only shows where the Rust side is checked too: the memory of a handle is Rust's. */
#include <redlatch.h>

int main(void) {
    redlatch_cancel *cancel = NULL;
    if (redlatch_cancel_new(&cancel) != REDLATCH_OK) return 1;
    redlatch_cancel_free(cancel);
    return redlatch_cancel_is_cancelled(cancel) ? 2 : 3;
}
