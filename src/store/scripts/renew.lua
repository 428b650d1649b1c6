-- Makes the caller's lock last at least the given time from now. Never shortens it and never creates it.
--
-- KEYS  1 lock
-- ARGV  1 token   2 lease in ms
-- Returns  1 if the lock is the caller's   0 if the key is gone   -1 if another holds it

local holder = redis.call('GET', KEYS[1])
if not holder then
  return 0
end
if holder ~= ARGV[1] then
  return -1
end
-- Compared here and not with PEXPIRE GT, which would leave a key without TTL as it is.
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
