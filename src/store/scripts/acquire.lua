-- Grants the lock if it is free or already the caller's, and draws the grant's fencing tokens. Otherwise the caller may
-- take a place among those who wait.
--
-- KEYS  1 lock   2 fencing counter   3 queue   4 waiters
-- ARGV  1 token   2 lease in ms   3 how long the counter outlives the grant, in ms   4 how many fencing tokens
--       5 1 to stand behind all who wait, else 0
--       6 channel to knock at, or nothing if the caller will not wait
--       7 how long it waits unless it asks again, in ms   8 claim in ms, or 0
--       9 its place: nothing if none was asked for yet, 0 if it is not known
--       10 … token and place, again and again: others of the same client that wait on
-- Returns  the first fencing token if granted
--          {remaining TTL in ms, or -1 for none; place, or 0} if another holds it, or has to have it first
--          nil if the fencing counter's key holds something else

local lock, queue, waiters, token = KEYS[1], KEYS[3], KEYS[4], ARGV[1]
local place = tonumber(ARGV[9])

-- Everything that can be wrong is found out before the first write.
local time = redis.call('TIME')
local now = milliseconds(time)
local first, last = next_fencing_tokens(KEYS[2], time, tonumber(ARGV[4]))
if not first then
  return false
end
local head = ARGV[5] == '1' and waiter_at(queue, waiters, 0, now) or nil
local may_take = not head or head.token == token or (place or 0) > 0 and place < head.place

local function enter_as(name, at)
  redis.call('ZADD', queue, string.format('%.0f', at), name)
  redis.call('HSET', waiters, name, string.format('%.0f %s %s', now + ARGV[7], ARGV[8], ARGV[6]))
end

local function outlast(key)
  if redis.call('PTTL', key) < tonumber(ARGV[7]) then
    redis.call('PEXPIRE', key, ARGV[7])
  end
end

-- Takes the caller's place, or keeps it, along with those of its companions.
local function enter()
  local own = place or 0
  if own == 0 then
    local youngest = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
    own = redis.call('ZSCORE', queue, token) or math.max(time[1] * 1000000 + time[2], youngest + 1)
  end
  enter_as(token, own)
  for at = 10, #ARGV, 2 do
    enter_as(ARGV[at], ARGV[at + 1])
  end
  outlast(queue)
  outlast(waiters)
  return tonumber(own)
end

if not (may_take and redis.call('SET', lock, token, 'NX', 'PX', ARGV[2])) then
  local holder = redis.call('GET', lock)
  local ttl = redis.call('PTTL', lock)
  if holder == claim_of(token) then
    redis.call('SET', lock, token, 'PX', ARGV[2])
  elseif holder ~= token then
    if not holder then
      ttl = head.left
    end
    return {ttl, ARGV[6] ~= '' and enter() or place or 0}
  elseif ttl < tonumber(ARGV[2]) then
    -- A repeated acquire must not shorten what an earlier attempt or renewal was given.
    redis.call('PEXPIRE', lock, ARGV[2])
  end
end

if place then
  take_out(queue, waiters, token)
end
redis.call('SET', KEYS[2], string.format('%.0f', last), 'PX', ARGV[3])
return first
