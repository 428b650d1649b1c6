-- Looks at the lock and changes nothing.
--
-- KEYS  1 lock   2 fencing counter
-- Returns  {token or nil, remaining TTL in ms or -1 for none, fencing counter or nil}
--          nil if the fencing counter's key holds something else

local token = redis.call('GET', KEYS[1])
local counter = redis.pcall('GET', KEYS[2])
if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE') then
  -- Not permitted. Fails again, and tells where.
  return redis.call('GET', KEYS[2])
end
local fencing = counter and tonumber(counter)
if counter and not fencing then
  return false
end
return {token, redis.call('PTTL', KEYS[1]), fencing}
