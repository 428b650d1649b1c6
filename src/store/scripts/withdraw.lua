-- Takes back a place among those who wait, and the claim that came of it, for the others. What the token holds it
-- keeps.
--
-- KEYS  the slot's, then 1 queue   2 waiters
-- ARGV  the slot's, then 1 token
-- Returns  0

queue_at(KEYS[1], KEYS[2]).withdraw(ARGV[1])
return 0
