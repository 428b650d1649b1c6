// One of two sources that both use the header, and are linked together: see second_unit.cpp.

#include <redlatch.hpp>

redlatch::Guard acquired_elsewhere(const redlatch::Client &client);

int main() {
    const auto client = redlatch::Client::open("memory://");
    const redlatch::Guard guard = acquired_elsewhere(client);
    try {
        client.lock("units").acquire_with(redlatch::Wait::none()).release();
    } catch (const redlatch::Timeout &error) {
        return guard.is_held() && error.code() == REDLATCH_BUSY ? 0 : 1;
    }
    return 1;
}
