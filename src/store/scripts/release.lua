-- Deletes the lock if it is the token's. May leave a mark, by which a repetition knows that it was.
--
-- KEYS  1 lock   2 mark of the last release
-- ARGV  1 token   2 fencing token of the grant, or 0   3 how long the mark stays, in ms; 0 for none
--       4 1 if this is a repetition, else 0
-- Returns  1 if it was the token's, also if an earlier request has released it
--          0 if the key is gone   -1 if another holds it
--          an error to a repetition if a later grant has covered the mark: it cannot know more

local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE') then
  -- Not permitted. Fails again, and tells where.
  return redis.call('GET', KEYS[1])
end
local mark = redis.pcall('GET', KEYS[2])
local own_mark = ARGV[2] .. ' ' .. ARGV[1]

if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  -- A key of another type is not ours to overwrite. Without memory for a mark the release stands all the same.
  if ARGV[3] ~= '0' and type(mark) ~= 'table' then
    redis.pcall('SET', KEYS[2], own_mark, 'PX', ARGV[3])
  end
  return 1
end
if mark == own_mark then
  return 1
end
if ARGV[4] == '1' and type(mark) == 'string' and tonumber(string.match(mark, '^%d+') or 0) > tonumber(ARGV[2]) then
  return redis.error_reply('SUPERSEDED by the release of a later grant')
end
return holder and -1 or 0
