-- What a semaphore is on the server: a sorted set of its permits, by the ms at which they end. A permit is the token of
-- its holder, and for the second and further ones of it <token>:<nth>; or the same of a claim. Stands before the
-- scripts, which know it as a slot. A function costs time at each call of a script, used or not: what concerns waiters
-- is made in one that is called when there are some.
--
-- KEYS  1 semaphore   2 limit: "<declared> <the one that governs>"; a renewal may leave it out
-- ARGV  1 the declared limit   2 how many permits one hold has
--       3 how long the limit is kept after the last lease, in ms

local key, limit_key = table.remove(KEYS, 1), table.remove(KEYS, 1)
local slot_key = key
local declared, permits = tonumber(table.remove(ARGV, 1)), tonumber(table.remove(ARGV, 1))
local kept_for = tonumber(table.remove(ARGV, 1))
local slot_permits = permits
-- Whether there may be some of it left for others when somebody has it.
local slot_is_shared = true

-- What is kept: false if nothing is, nil if it is something else.
local stored = limit_key and unless_wrong_type(pcall('GET', limit_key), 'get')
local limit = declared
if stored ~= false then
  stored, limit = string.match(stored or '', '^(%d+) (%d+)$')
  limit = tonumber(limit) or 0
end

-- Why the caller may not use it, if so.
local slot_refusal
if stored == nil then
  slot_refusal = redis.error_reply('KEYCONFLICT limit')
elseif stored and tonumber(stored) ~= declared then
  slot_refusal = redis.error_reply('LIMITMISMATCH ' .. stored)
end

-- Until when the owner has its permits; nil if it has none.
local function ends(owner)
  local score = tonumber(call('ZSCORE', key, owner) or 0)
  return score > millis() and score or nil
end

local function free()
  return limit - call('ZCOUNT', key, string.format('(%.0f', millis()), '+inf')
end

-- Makes the key, which has this TTL, last at least so long; and as long as its last permit, should somebody have taken
-- its TTL away.
local function outlast_permits(ttl, ms)
  if ttl == -1 then
    local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
    ms = math.max(ms, last - millis())
  end
  local extended = pcall('PEXPIRE', key, string.format('%.0f', math.max(ttl, ms + 1)))
  if ttl == -2 and type(extended) == 'table' then
    -- Not permitted. Nothing is left without a TTL.
    call('DEL', key)
  end
  unless_wrong_type(extended, 'pexpire')
end

local function write(owner, count, ms)
  -- In whole ms, not before the time is over.
  local score = string.format('%.0f', math.ceil(micros() / 1000) + ms)
  local scored = {score, owner}
  for nth = 2, count do
    scored[2 * nth - 1], scored[2 * nth] = score, owner .. ':' .. nth
  end
  call('ZADD', key, unpack(scored))
end

local function put(owner, count, ms)
  local ttl = call('PTTL', key)
  write(owner, count, ms)
  if ttl < ms + 1 then
    outlast_permits(ttl, ms)
  end
end

local function remove(owner, count)
  local members = {owner}
  for nth = 2, count do
    members[nth] = owner .. ':' .. nth
  end
  call('ZREM', key, unpack(members))
end

local function keep_limit(ms)
  -- What is something else is left as it is.
  if stored then
    outlast(limit_key, ms + kept_for)
  end
end

-- Writes the limit down, which governs from now on.
local function slot_set_limit(new, ms)
  limit = tonumber(new)
  local ttl = math.max(call('PTTL', limit_key), ms + kept_for)
  call('SET', limit_key, string.format('%.0f %.0f', declared, limit), 'PX', string.format('%.0f', ttl))
end

-- 1 if the token holds its permits, 0 if it does not, -1 if the key holds something else.
local function slot_found(token)
  local score = unless_wrong_type(pcall('ZSCORE', key, token), 'zscore')
  return score == nil and -1 or tonumber(score or 0) > millis() and 1 or 0
end

-- Never shortens the lease.
local function slot_prolong(token, ms)
  ms = tonumber(ms)
  local ttl = call('PTTL', key)
  local is_short = call('ZSCORE', key, token) - millis() < ms
  if is_short or ttl == -1 then
    -- In any case, and first: a script that has written something may go on without memory.
    outlast_permits(ttl, ms)
  end
  if is_short then
    write(token, permits, ms)
  end
  keep_limit(ms)
end

-- Takes its permits from the holder.
local function slot_drop(token)
  remove(token, permits)
end

-- Grants its permits to the token if they are that already, left to it, or free and nobody in the line is ahead.
-- Without a line nobody is. Otherwise returns false, in how many ms that may change, -1 for never, and whether some are
-- free all the same.
local function slot_take(token, ms, line, place)
  ms = tonumber(ms)
  if ends(token) then
    slot_prolong(token, ms)
    return true
  end
  local claimed = place and ends(claim_of(token)) and permits or 0
  local missing = permits - free() - claimed
  if missing > 0 then
    local live = string.format('(%.0f', millis())
    local last = call('ZRANGE', key, live, '+inf', 'BYSCORE', 'LIMIT', missing - 1, 1, 'WITHSCORES')[2]
    if claimed > 0 then
      -- The limit was lowered meanwhile. Permits are left to it anew when there is room.
      remove(claim_of(token), permits)
    end
    return false, last and last - millis() or -1, missing < permits
  end
  local head = claimed == 0 and line and line.ahead_of(token, place or 0)
  if head then
    return false, head.left, true
  end
  put(token, permits, ms)
  if stored then
    keep_limit(ms)
  else
    slot_set_limit(declared, ms)
  end
  if claimed > 0 then
    remove(claim_of(token), permits)
  end
  call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', millis()))
  return true
end

-- What is to be left to waiters.
local function slot_for_waiters()
  local self = {}

  -- Whether so many are free.
  function self.has_room(count)
    return free() >= count
  end

  function self.is_left_to(waiter)
    return ends(claim_of(waiter.token))
  end

  -- Leaves permits to a waiter: whoever else comes finds them taken.
  function self.leave_to(waiter)
    put(claim_of(waiter.token), waiter.permits, waiter.claim)
  end

  -- Takes back what was left to a waiter.
  function self.drop_claim(token, count)
    remove(claim_of(token), count)
  end

  function self.message(ms, waiter)
    -- Put together by hand: %s would end at a zero byte.
    return string.format('%.0f %.0f %.0f ', ms, declared, waiter.permits) .. waiter.token .. ' ' .. key
  end

  return self
end

local function slot_is_overdrawn()
  return free() < 0
end

-- How many marks of releases there are at most.
local MOST_MARKS = 1000

-- Notes that the holder has released its permits, so that a repetition knows: by when that was, since it is the
-- releases that follow which may cover it. A key of another type is left as it is: it is not ours. Without memory for
-- the mark the release stands all the same.
local function slot_mark_release(marks, mark, ms)
  local marked = pcall('ZADD', marks, string.format('%.0f', micros()), mark)
  if type(marked) == 'table' then
    return
  end
  pcall('ZREMRANGEBYRANK', marks, 0, -MOST_MARKS - 1)
  if type(pcall('PEXPIRE', marks, ms)) == 'table' then
    -- Not permitted. Nothing is left without a TTL.
    pcall('DEL', marks)
  end
end

-- Whether that was noted; nil if later releases may have covered it.
local function slot_was_released(marks, mark)
  if type(pcall('ZSCORE', marks, mark)) == 'string' then
    return true
  end
  if pcall('ZCARD', marks) == MOST_MARKS then
    return nil
  end
  return false
end

-- Who holds permits: member and remaining time in ms, again and again. Then the limit, as it is declared and as it
-- governs.
local function slot_look()
  local live = string.format('(%.0f', millis())
  local all = call('ZRANGE', key, live, '+inf', 'BYSCORE', 'WITHSCORES')
  for at = 2, #all, 2 do
    all[at] = all[at] - millis()
  end
  return all, tonumber(stored or declared), limit
end
