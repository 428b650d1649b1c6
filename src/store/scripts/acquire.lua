-- Grants the slot if it is free or already the caller's, and draws the grant's fencing tokens. Otherwise the caller may
-- take a place among those who wait.
--
-- KEYS  the slot's, then 1 fencing counter   2 queue   3 waiters: a lock's only if 5 and on are given
-- ARGV  the slot's, then 1 token   2 lease in ms   3 how long the counter outlives the grant, in ms
--       4 how many fencing tokens
--       5 1 to stand behind all who wait, else 0
--       6 its place: nothing if none was asked for yet, 0 if it is not known
--       7 channel to knock at   8 how long it waits unless it asks again, in ms   9 claim in ms, or 0: if it will wait
--       10 … token and place, again and again: others of the same client that wait on
-- Returns  the first fencing token if granted
--          {ms until that may change, or -1 for never; place, or 0} if it is taken, or others have to have it first
--          the error KEYCONFLICT <kind> if a helper key holds something else
--          the error LIMITMISMATCH <declared> if others declare another limit

local counter, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, lease, place = ARGV[1], ARGV[2], tonumber(ARGV[6] or '')

-- Everything that can be wrong is found out before the first write.
if slot_refusal then
  return slot_refusal
end
local first_token, last_token = next_fencing_tokens(counter, ARGV[4])
if not first_token then
  return redis.error_reply('KEYCONFLICT fencing')
end

if place and unless_wrong_type(pcall('ZSCORE', queue, token), 'zscore') == nil then
  return redis.error_reply('KEYCONFLICT queue')
end
if place and unless_wrong_type(pcall('HGET', waiters, token), 'hget') == nil then
  return redis.error_reply('KEYCONFLICT waiters')
end

local line = ARGV[5] and queue_at(queue, waiters)
local granted, changes_in, some_are_free = slot_take(token, lease, ARGV[5] == '1' and line, place)
if not granted then
  local waits = ARGV[7] and line.enter(token, place, ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), 10)
  -- Nobody else tells those who want less, or have to have it first.
  if some_are_free and length(queue) > 0 then
    (line or queue_at(queue, waiters)).serve()
  end
  return {changes_in, waits or place or 0}
end
if place then
  line.take_out(token)
end
call('SET', counter, string.format('%.0f', last_token), 'PX', ARGV[3])
-- Permits that ended by themselves were left to nobody.
if slot_is_shared and length(queue) > 0 then
  queue_at(queue, waiters).serve()
end
return first_token
