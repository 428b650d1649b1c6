-- What a lock is on the server: a string, which holds its holder's token or a claim. Stands before the scripts, which
-- know it as a slot.
--
-- KEYS  1 lock

local lock = table.remove(KEYS, 1)
local slot = {permits = 1}
local is_free = false

-- Why the caller may not use it, if so.
function slot.refusal()
end

-- Grants it to the token if it is that already, left to it, or free and nobody is ahead. Otherwise returns false, and in
-- how many ms that may change; -1 for never.
function slot.take(token, ms, ahead)
  if not ahead and call('SET', lock, token, 'NX', 'PX', ms) then
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
  local head = not holder and ahead()
  if head then
    return false, head.left
  end
  call('SET', lock, token, 'PX', ms)
  return true
end

-- 1 if it is the token's, 0 if it is gone, -1 if something else stands there.
function slot.found(token)
  local holder = unless_wrong_type(pcall('GET', lock), 'get')
  return holder == token and 1 or holder == false and 0 or -1
end

function slot.prolong(_, ms)
  outlast(lock, tonumber(ms))
end

-- Takes it from its holder.
function slot.drop()
  call('DEL', lock)
  is_free = true
end

function slot.drop_claim(token)
  if pcall('GET', lock) == claim_of(token) then
    slot.drop()
  end
end

-- Whether so much is known to be free that it can be left to waiters.
function slot.has_room()
  return is_free
end

function slot.is_overdrawn()
  return false
end

function slot.is_left_to()
  return false
end

-- Leaves it to a waiter: whoever else comes finds it taken.
function slot.leave_to(waiter)
  call('SET', lock, claim_of(waiter.token), 'PX', waiter.claim)
  is_free = false
end

function slot.message(ms, waiter)
  -- Put together by hand: %s would end at a zero byte.
  return string.format('%.0f 0 0 ', ms) .. waiter.token .. ' ' .. lock
end

-- Notes that the holder has released it, so that a repetition knows. With GET a key of another type is left as it is: it
-- is not ours to overwrite. Without memory for the mark the release stands all the same.
function slot.mark_release(marks, mark, ms)
  pcall('SET', marks, mark, 'PX', ms, 'GET')
end

-- Whether that was noted; nil if a later release has covered it.
function slot.was_released(marks, mark, fencing_token)
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
function slot.look()
  local token = call('GET', lock)
  return token and {token, call('PTTL', lock)} or {}, 1, 1
end
