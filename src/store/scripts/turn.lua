-- Ends a grant: releases the lock if others wait for it, otherwise keeps it for the next grant of the same client.
--
-- KEYS  1 lock   2 mark of the last release   3 queue   4 waiters   5 fencing counter
-- ARGV  1 token   2 fencing token of the grant   3 how long the mark stays, in ms
--       4 lease in ms   5 how long the counter outlives the grant, in ms   6 how many fencing tokens
-- Returns  {the first fencing token} if it was kept   1 if it was released
--          0 if the key is gone   -1 if another holds it

local lock = KEYS[1]
local holder = call('GET', lock)
if holder ~= ARGV[1] then
  return holder and -1 or 0
end
local time = call('TIME')
local first_token, last_token = next_fencing_tokens(KEYS[5], time, ARGV[6])
local function waited_for()
  return length(KEYS[3]) > 0 and queue_at(KEYS[3], KEYS[4], time).first()
end
-- Without memory for the counter it cannot be kept.
if not first_token or waited_for() or pcall('SET', KEYS[5], string.format('%.0f', last_token), 'PX', ARGV[5]).err then
  hand_over(lock, KEYS[3], KEYS[4])
  leave_mark(KEYS[2], ARGV[2] .. ' ' .. ARGV[1], ARGV[3])
  return 1
end
if call('PTTL', lock) < tonumber(ARGV[4]) then
  call('PEXPIRE', lock, ARGV[4])
end
return {first_token}
