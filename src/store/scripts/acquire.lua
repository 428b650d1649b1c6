-- Grants the lock if it is free or already the caller's, and draws the grant's fencing token.
--
-- KEYS  1 lock   2 fencing counter
-- ARGV  1 token   2 lease in ms   3 how long the counter outlives the grant, in ms
-- Returns  the fencing token if granted
--          {remaining TTL in ms, or -1 for none} if another holds it
--          nil if the fencing counter's key holds something else

local call = redis.call

-- Everything that can be wrong is found out before the first write.
local counter = redis.pcall('GET', KEYS[2])
if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE') then
  -- Not permitted. Fails again, and tells where.
  return call('GET', KEYS[2])
end
counter = type(counter) ~= 'table' and tonumber(string.match(counter or '0', '^%d+$'))
if not (counter and counter < 2 ^ 53) then
  return false
end

-- The clock is ahead of every token ever drawn (no name is granted once a microsecond), so tokens keep
-- rising when the counter is lost or old; the counter keeps them rising when the clock steps back.
local time = call('TIME')
local fencing = time[1] * 1000000 + time[2]
if fencing <= counter then
  fencing = counter + 1
end

if not call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local holder = call('GET', KEYS[1])
  local ttl = call('PTTL', KEYS[1])
  if holder ~= ARGV[1] then
    return {ttl}
  end
  -- A repeated acquire must not shorten what an earlier attempt or renewal was given.
  if ttl < tonumber(ARGV[2]) then
    call('PEXPIRE', KEYS[1], ARGV[2])
  end
end

call('SET', KEYS[2], string.format('%.0f', fencing), 'PX', ARGV[3])
return fencing
