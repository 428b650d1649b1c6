// The other one: what it acquires is held by first_unit.cpp.

#include <redlatch.hpp>
// Twice, as it may come by way of other headers.
#include <redlatch.hpp>

redlatch::Guard acquired_elsewhere(const redlatch::Client &client);

redlatch::Guard acquired_elsewhere(const redlatch::Client &client) { return client.lock("units").acquire(); }
