-- Grants the lock if it is free or already the caller's, and draws the grant's fencing token.
--
-- KEYS  1 lock   2 fencing counter
-- ARGV  1 token   2 lease in ms   3 how long the counter outlives the grant, in ms
-- Returns  {1, fencing token} if granted
--          {0, remaining TTL in ms, or -1 for none} if another holds it
--          {-1} if the fencing counter's key holds something else

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[1])}
end

local counter = redis.pcall('GET', KEYS[2])
if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE') then
  return counter
end
counter = tonumber(counter or 0)
if not (counter and counter >= 0 and counter < 2 ^ 53) then
  return {-1}
end

-- A repeated acquire must not shorten what an earlier attempt or renewal was given.
local lease = tonumber(ARGV[2])
if holder then
  lease = math.max(lease, redis.call('PTTL', KEYS[1]))
end

-- The clock is ahead of every token ever drawn (no name is granted once a microsecond), so tokens keep
-- rising when the counter is lost or old; the counter keeps them rising when the clock steps back.
local time = redis.call('TIME')
local fencing = math.max(counter + 1, time[1] * 1000000 + time[2])

redis.call('SET', KEYS[2], string.format('%.0f', fencing), 'PX', ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', string.format('%.0f', lease))
return {1, fencing}
