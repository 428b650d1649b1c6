-- Releases what the token holds, and leaves it to those who wait. May leave a mark, by which a repetition knows that it
-- was. Without a mark it also takes back what else an acquire may have left: a place, or a claim.
--
-- KEYS  the slot's, then 1 marks of releases   2 queue   3 waiters
-- ARGV  the slot's, then 1 token   2 fencing token of the grant, or 0   3 how long the mark stays, in ms; 0 for none
--       4 1 if this is a repetition, else 0
-- Returns  1 if it was the token's, also if an earlier request has released it
--          0 if it is gone   -1 if something else stands there
--          an error to a repetition if later releases have covered the mark: it cannot know more

local marks, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, marked = ARGV[1], ARGV[3] ~= '0'
local mark = ARGV[2] .. ' ' .. token

local found = slot_found(token)
if found == 1 then
  release(token, queue, waiters)
  if marked then
    slot_mark_release(marks, mark, ARGV[3])
  end
elseif marked then
  local was_released = slot_was_released(marks, mark, ARGV[2])
  if was_released then
    return 1
  end
  if was_released == nil and ARGV[4] == '1' then
    return redis.error_reply('SUPERSEDED by later releases')
  end
end
if not marked then
  queue_at(queue, waiters).withdraw(token)
end
return found
