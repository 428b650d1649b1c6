-- Ends a grant: releases what it held if others wait for it, otherwise keeps it for the next grant of the same client.
--
-- KEYS  the slot's, then 1 marks of releases   2 queue   3 waiters   4 fencing counter
-- ARGV  the slot's, then 1 token   2 fencing token of the grant   3 how long the mark stays, in ms
--       4 lease in ms   5 how long the counter outlives the grant, in ms   6 how many fencing tokens
--       7 token of the waiter that is to have it   8 1 to keep it although others wait, else 0
--       9 1 if that one gives up its place, 0 if that is for somebody else
-- Returns  {the first fencing token} if it was kept   1 if it was released
--          0 if it is gone   -1 if something else stands there

local marks, queue, waiters, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, heir = ARGV[1], ARGV[7]

local found = slot_found(token)
if found ~= 1 then
  return found
end
local first_token, last_token = next_fencing_tokens(counter, ARGV[6])
local function others_first()
  local head = ARGV[8] == '0' and length(queue) > 0 and queue_at(queue, waiters).first()
  return head and head.token ~= heir
end
-- Without memory for the counter it cannot be kept.
if not first_token or slot_is_overdrawn() or others_first()
    or pcall('SET', counter, string.format('%.0f', last_token), 'PX', ARGV[5]).err then
  release(token, queue, waiters)
  slot_mark_release(marks, ARGV[2] .. ' ' .. token, ARGV[3])
  return 1
end
slot_prolong(token, ARGV[4])
if ARGV[9] == '1' and length(queue) > 0 then
  queue_at(queue, waiters).withdraw(heir)
end
return {first_token}
