-- What a lock is on the server: a string, which holds its holder's token or a claim. Stands before the scripts, which
-- know it as a slot. A function costs time at each call of a script, used or not: what concerns waiters is made in one
-- that is called when there are some.
--
-- KEYS  1 lock

local lock = table.remove(KEYS, 1)
local slot_key = lock
local slot_permits = 1
-- Whether there may be some of it left for others when somebody has it.
local slot_is_shared = false
-- Why the caller may not use it, if so.
local slot_refusal
local is_free = false

-- Grants it to the token if it is that already, left to it, or free and nobody in the line is ahead; without a line
-- nobody is. Otherwise returns false, and in how many ms that may change; -1 for never.
local function slot_take(token, ms, line, place)
  if not line and call('SET', lock, token, 'NX', 'PX', ms) then
    return true
  end
  local holder = call('GET', lock)
  if holder == token then
    outlast(lock, tonumber(ms))
    return true
  end
  if holder and holder ~= claim_of(token) then
    return false, call('PTTL', lock)
  end
  local head = not holder and line.ahead_of(token, place or 0)
  if head then
    return false, head.left
  end
  call('SET', lock, token, 'PX', ms)
  return true
end

-- 1 if it is the token's, 0 if it is gone, -1 if something else stands there.
local function slot_found(token)
  local holder = unless_wrong_type(pcall('GET', lock), 'get')
  return holder == token and 1 or holder == false and 0 or -1
end

local function slot_prolong(_, ms)
  outlast(lock, tonumber(ms))
end

-- Takes it from its holder.
local function slot_drop()
  call('DEL', lock)
  is_free = true
end

-- What is to be left to waiters.
local function slot_for_waiters()
  local self = {}

  -- Whether so much is known to be free.
  function self.has_room(count)
    return is_free or count == 0
  end

  function self.is_left_to()
    return false
  end

  -- Leaves it to a waiter: whoever else comes finds it taken.
  function self.leave_to(waiter)
    call('SET', lock, claim_of(waiter.token), 'PX', waiter.claim)
    is_free = false
  end

  -- Takes back what was left to a waiter.
  function self.drop_claim(token)
    if pcall('GET', lock) == claim_of(token) then
      slot_drop()
    end
  end

  function self.message(ms, waiter)
    -- Put together by hand: %s would end at a zero byte.
    return string.format('%.0f 0 0 ', ms) .. waiter.token .. ' ' .. lock
  end

  return self
end

local function slot_is_overdrawn()
  return false
end

-- Notes that the holder has released it, so that a repetition knows. With GET a key of another type is left as it is:
-- it is not ours to overwrite. Without memory for the mark the release stands all the same.
local function slot_mark_release(marks, mark, ms)
  pcall('SET', marks, mark, 'PX', ms, 'GET')
end

-- Whether that was noted; nil if a later release has covered it.
local function slot_was_released(marks, mark, fencing_token)
  local last = pcall('GET', marks)
  if last == mark then
    return true
  end
  if type(last) == 'string' and tonumber(string.match(last, '^%d+') or 0) > tonumber(fencing_token) then
    return nil
  end
  return false
end

-- Who holds it: token and remaining TTL in ms, -1 for none. Then the limit, as it is declared and as it governs.
local function slot_look()
  local token = call('GET', lock)
  return token and {token, call('PTTL', lock)} or {}, 1, 1
end
