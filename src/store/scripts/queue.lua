-- Who waits for the lock, and what its release leaves to them. Stands before the scripts that need it.
--
-- A waiter is its token in the queue (a sorted set, by place) and "<lives until, in ms> <claim in ms> <channel>" at its
-- token in a hash. A claim of 0 lasts as long as the waiter lives. A waiter that does not come for its claim counts
-- as dead when that is over, until it asks again.

local function milliseconds(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function claim_of(token)
  return 'redlatch:claim:' .. token
end

local function take_out(queue, waiters, token)
  redis.call('ZREM', queue, token)
  redis.call('HDEL', waiters, token)
end

-- The waiter at this rank among those that live. Takes the dead before it out.
local function waiter_at(queue, waiters, rank, now)
  while true do
    local found = redis.call('ZRANGE', queue, rank, rank, 'WITHSCORES')
    local token = found[1]
    if not token then
      return nil
    end
    local details = redis.call('HGET', waiters, token) or ''
    local until_ms, claim, channel = string.match(details, '^(%d+) (%d+) (.*)$')
    if until_ms and tonumber(until_ms) > now then
      local left = until_ms - now
      return {
        token = token, place = tonumber(found[2]), left = left, fair = claim == '0', channel = channel,
        claim = claim == '0' and left or math.min(tonumber(claim), left),
      }
    end
    take_out(queue, waiters, token)
  end
end

-- Tells a waiter to come for the lock, in so many ms; returns whether anybody may have heard it.
local function knock(waiter, lock, ms)
  local heard = redis.pcall('PUBLISH', waiter.channel, string.format('%.0f %s %s', ms, waiter.token, lock))
  return type(heard) == 'number' and heard > 0
end

-- Takes the lock from its holder and leaves it to the first waiter, as a claim: whoever else comes finds it taken. One
-- that is not strict about its turn is passed over if nobody hears it. The next in line is told when the claim
-- is over. Once the lock is deleted nothing below can fail for want of memory.
local function leave(lock, queue, waiters)
  redis.call('DEL', lock)
  if redis.call('EXISTS', queue) == 0 then
    return
  end
  local now = milliseconds(redis.call('TIME'))
  local rank = 0
  while true do
    local waiter = waiter_at(queue, waiters, rank, now)
    if not waiter then
      redis.call('DEL', lock)
      return
    end
    redis.call('SET', lock, claim_of(waiter.token), 'PX', waiter.claim)
    if knock(waiter, lock, 0) or waiter.fair then
      local details = string.format('%.0f %s %s', now + waiter.claim, waiter.fair and 0 or waiter.claim, waiter.channel)
      redis.call('HSET', waiters, waiter.token, details)
      local next_one = waiter_at(queue, waiters, rank + 1, now)
      if next_one then
        knock(next_one, lock, waiter.claim)
      end
      return
    end
    rank = rank + 1
  end
end

-- Notes that the token's holder has released the lock, so that a repetition knows it. A key of another type is not
-- ours to overwrite. Without memory for the mark the release stands all the same.
local function leave_mark(mark, own_mark, ms)
  if type(redis.pcall('GET', mark)) ~= 'table' then
    redis.pcall('SET', mark, own_mark, 'PX', ms)
  end
end

-- The first of so many fencing tokens in a row, and the last; nil if the counter's key holds something else.
--
-- The clock is ahead of every token ever drawn (no name is granted, or handed on, once a microsecond), so tokens keep
-- rising when the counter is lost or old; the counter keeps them rising when the clock steps back.
local function next_fencing_tokens(counter, time, count)
  local last = redis.pcall('GET', counter)
  if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE') then
    -- Not permitted. Fails again, and tells where.
    return redis.call('GET', counter)
  end
  last = type(last) ~= 'table' and tonumber(string.match(last or '0', '^%d+$'))
  if not (last and last < 2 ^ 53) then
    return nil
  end
  local first = math.max(last + 1, time[1] * 1000000 + time[2])
  return first, first + count - 1
end
