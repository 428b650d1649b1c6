-- Grants the lock if it is free or already the caller's, and draws the grant's fencing tokens. Otherwise the caller may
-- take a place among those who wait.
--
-- KEYS  1 lock   2 fencing counter   3 queue   4 waiters: these two only if 5 and on are given
-- ARGV  1 token   2 lease in ms   3 how long the counter outlives the grant, in ms   4 how many fencing tokens
--       5 1 to stand behind all who wait, else 0
--       6 its place: nothing if none was asked for yet, 0 if it is not known
--       7 channel to knock at   8 how long it waits unless it asks again, in ms   9 claim in ms, or 0: if it will wait
--       10 … token and place, again and again: others of the same client that wait on
-- Returns  the first fencing token if granted
--          {remaining TTL in ms, or -1 for none; place, or 0} if another holds it, or has to have it first
--          nil if the fencing counter's key holds something else

local lock, token, lease = KEYS[1], ARGV[1], ARGV[2]

-- Everything that can be wrong is found out before the first write.
local time = call('TIME')
local first_token, last_token = next_fencing_tokens(KEYS[2], time, ARGV[4])
if not first_token then
  return false
end

-- The holder's own repetition, which must not shorten what an earlier attempt or renewal was given.
local function prolong(ttl)
  if ttl < tonumber(lease) then
    call('PEXPIRE', lock, lease)
  end
end

if not ARGV[5] then
  if not call('SET', lock, token, 'NX', 'PX', lease) then
    local holder = call('GET', lock)
    local ttl = call('PTTL', lock)
    if holder ~= token then
      return {ttl, 0}
    end
    prolong(ttl)
  end
else
  local queue = queue_at(KEYS[3], KEYS[4], time)
  local place = tonumber(ARGV[6])

  local details = string.format('%.0f ', queue.now + (ARGV[8] or 0)) .. (ARGV[9] or '') .. ' ' .. (ARGV[7] or '')
  local function outlast(key)
    local ttl = call('PTTL', key)
    call('PEXPIRE', key, math.max(ttl, tonumber(ARGV[8])))
  end
  -- Takes the caller's place, or keeps it, along with those of its companions. Whether the keys may be given a TTL at all
  -- is found out before the first write.
  local function enter()
    local known = call('ZSCORE', KEYS[3], token)
    local own = place or 0
    if own == 0 then
      local youngest = call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2] or 0
      own = known or math.max(time[1] * 1000000 + time[2], youngest + 1)
    end
    outlast(KEYS[4])
    call('HSET', KEYS[4], token, details)
    outlast(KEYS[4])
    call('ZADD', KEYS[3], string.format('%.0f', own), token)
    outlast(KEYS[3])
    for at = 10, #ARGV, 2 do
      -- If the caller's place is still there, theirs have not lapsed either: one that is not there has gone.
      if not known or call('ZSCORE', KEYS[3], ARGV[at]) then
        call('HSET', KEYS[4], ARGV[at], details)
        call('ZADD', KEYS[3], ARGV[at + 1], ARGV[at])
      end
    end
    return tonumber(own)
  end
  -- Whoever has to have it first, if that is not the caller.
  local function ahead()
    local head = ARGV[5] == '1' and queue.first()
    if not head or head.token == token then
      return nil
    end
    local has_older_place = (place or 0) > 0 and place < tonumber(call('ZSCORE', KEYS[3], head.token))
    return not has_older_place and head or nil
  end

  local holder = place and call('GET', lock)
  if holder == queue.claim_of(token) then
    call('SET', lock, token, 'PX', lease)
  else
    local head = not holder and ahead()
    if holder or head or not call('SET', lock, token, 'NX', 'PX', lease) then
      holder = holder or call('GET', lock)
      local ttl = holder and call('PTTL', lock) or head.left
      if holder ~= token then
        return {ttl, ARGV[7] and enter() or place or 0}
      end
      prolong(ttl)
    end
  end
  if place then
    queue.take_out(token)
  end
end

call('SET', KEYS[2], string.format('%.0f', last_token), 'PX', ARGV[3])
return first_token
