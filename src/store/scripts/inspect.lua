-- Looks at the lock and changes nothing.
--
-- KEYS  1 lock   2 fencing counter
-- Returns  {token or nil, remaining TTL in ms or -1 for none, fencing counter or nil if its key holds something else}

local token = redis.call('GET', KEYS[1])
local ttl = redis.call('PTTL', KEYS[1])
local counter = redis.pcall('GET', KEYS[2])
if type(counter) == 'table' then
  if not string.find(counter.err, 'WRONGTYPE') then
    -- Not permitted. Fails again, and tells where.
    return redis.call('GET', KEYS[2])
  end
  counter = false
end
return {token, ttl, counter}
