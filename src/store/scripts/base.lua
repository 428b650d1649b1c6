-- Stands before every script. After it comes the kind of what is held, which the scripts know as a slot. It takes its
-- own keys and arguments away from KEYS and ARGV, and defines
--
--   slot_key               the key of what is held
--   slot_permits           how many permits one hold has
--   slot_is_shared         whether others may hold some of it at the same time
--   slot_refusal           an error if the caller may not use it, or nil
--   slot_take(token, ms, line, place)
--                          grants it if it is the token's already, left to it, or free and nobody in the line is ahead;
--                          without a line nobody is. Returns true; or false, in how many ms that may change (-1 for
--                          never), and whether some of it is free all the same
--   slot_found(token)      1 if the token holds it, 0 if it does not, -1 if something else stands there
--   slot_prolong(token, ms)   makes the hold last at least so long from now; never shortens it
--   slot_drop(token)       takes it from its holder
--   slot_is_overdrawn()    whether more is held than there is
--   slot_for_waiters()     what can be left to waiters: has_room(count), is_left_to(waiter), leave_to(waiter),
--                          drop_claim(token, count), message(ms, waiter)
--   slot_mark_release(marks, mark, ms), slot_was_released(marks, mark, fencing_token)
--                          note that a hold was released; tell whether that was noted, nil if it cannot be known
--   slot_look()            the holders and claims with their remaining ms (-1 for no end), the declared limit, the one
--                          that governs

local call, pcall = redis.call, redis.pcall

-- Whether it runs in a cluster: for one, redlatch writes true here.
local in_cluster = false

-- The server's time, read once: all of a script happens at one instant.
local time
local function micros()
  time = time or call('TIME')
  return time[1] * 1000000 + time[2]
end
local function millis()
  return math.floor(micros() / 1000)
end

-- What a command returned that was called by pcall; nil if the key holds something else. An error of another kind, such
-- as a missing permission, is raised.
local function unless_wrong_type(reply, command)
  if type(reply) ~= 'table' or not reply.err then
    return reply
  end
  if not string.find(reply.err, 'WRONGTYPE') then
    -- Redis 7.0 does not say of which command it speaks.
    error(reply.err .. ": it was to run the '" .. command .. "' command")
  end
end

-- Makes the key last at least so long. Compared here and not with PEXPIRE GT, which would leave a key without TTL as it
-- is.
local function outlast(key, ms)
  if call('PTTL', key) < ms then
    call('PEXPIRE', key, string.format('%.0f', ms))
  end
end

local function claim_of(token)
  return 'redlatch:claim:' .. token
end

-- The first of so many fencing tokens in a row, none of them below the floor if there is one, and the last; nil if the
-- counter's key holds something else.
--
-- The clock is ahead of every token ever drawn (no name is granted, or handed on, once a microsecond), so tokens keep
-- rising when the counter is lost or old; the counter keeps them rising when the clock steps back.
local function next_fencing_tokens(counter, count, floor)
  local last = unless_wrong_type(pcall('GET', counter), 'get')
  last = last == false and 0 or tonumber(string.match(last or '', '^%d+$'))
  if not (last and last < 2 ^ 53) then
    return nil
  end
  local first = math.max(last + 1, micros(), floor or 0)
  return first, first + count - 1
end
