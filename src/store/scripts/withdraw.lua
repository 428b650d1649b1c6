-- Takes back a place among those who wait, and the claim that came of it: the next one gets it. What the token holds
-- it keeps.
--
-- KEYS  1 lock   2 queue   3 waiters
-- ARGV  1 token
-- Returns  0

withdraw(KEYS[1], KEYS[2], KEYS[3], ARGV[1])
return 0
