-- Deletes the lock if it is the token's, and leaves a mark by which a repetition knows that it was.
--
-- KEYS  1 lock   2 mark of the last release
-- ARGV  1 token   2 how long the mark stays, in ms; 0 for none
-- Returns  1 if it was the token's, also if an earlier request has released it
--          0 if the key is gone   -1 if another holds it

local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if ARGV[2] ~= '0' then
    -- Without memory for it, or the permission, the release stands all the same.
    redis.pcall('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
  end
  return 1
end
if redis.pcall('GET', KEYS[2]) == ARGV[1] then
  return 1
end
return holder and -1 or 0
