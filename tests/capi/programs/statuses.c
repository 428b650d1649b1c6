/*
 * What each number says: "<number> <text>" a line.
 */
#include "check.h"

int main(void)
{
    for (int32_t status = 40; status >= -200; status--) printf("%" PRId32 " %s\n", status, redlatch_status_str(status));
    return 0;
}
