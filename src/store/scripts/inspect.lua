-- Looks at the lock and changes nothing.
--
-- KEYS  1 lock   2 fencing counter   3 waiters
-- Returns  {token or nil, remaining TTL in ms or -1 for none, fencing counter or nil if its key holds something else,
--          how many wait}

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
local time = redis.call('TIME')
local waiting = 0
for _, details in ipairs(redis.call('HVALS', KEYS[3])) do
  if tonumber(string.match(details, '^%d+')) > time[1] * 1000 + time[2] / 1000 then
    waiting = waiting + 1
  end
end
return {token, ttl, counter, waiting}
