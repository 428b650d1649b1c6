-- Releases the lock if it is the token's, and leaves it to the next who waits. May leave a mark, by which a repetition
-- knows that it was. Without a mark it also takes back what else an acquire may have left: a place, or a claim.
--
-- KEYS  1 lock   2 mark of the last release   3 queue   4 waiters
-- ARGV  1 token   2 fencing token of the grant, or 0   3 how long the mark stays, in ms; 0 for none
--       4 1 if this is a repetition, else 0
-- Returns  1 if it was the token's, also if an earlier request has released it
--          0 if the key is gone   -1 if another holds it
--          an error to a repetition if a later grant has covered the mark: it cannot know more

local lock, token, marked = KEYS[1], ARGV[1], ARGV[3] ~= '0'
local own_mark = ARGV[2] .. ' ' .. token
local holder = pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE') then
  -- Not permitted. Fails again, and tells where.
  return call('GET', lock)
end

if not marked and type(holder) ~= 'table' then
  withdraw(lock, KEYS[3], KEYS[4], token)
end
if holder == token then
  hand_over(lock, KEYS[3], KEYS[4])
  if marked then
    leave_mark(KEYS[2], own_mark, ARGV[3])
  end
  return 1
end
local mark = pcall('GET', KEYS[2])
if mark == own_mark then
  return 1
end
if ARGV[4] == '1' and type(mark) == 'string' and tonumber(string.match(mark, '^%d+') or 0) > tonumber(ARGV[2]) then
  return redis.error_reply('SUPERSEDED by the release of a later grant')
end
return holder and -1 or 0
