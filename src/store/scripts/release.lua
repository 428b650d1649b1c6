-- Deletes the lock if it is the caller's.
--
-- KEYS  1 lock
-- ARGV  1 token
-- Returns  1 if it was the caller's   0 if the key is gone   -1 if another holds it

local holder = redis.call('GET', KEYS[1])
if not holder then
  return 0
end
if holder ~= ARGV[1] then
  return -1
end
redis.call('DEL', KEYS[1])
return 1
