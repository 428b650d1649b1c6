-- Grants the lock on one of several servers if it is free, or already the caller's, and draws a fencing token. Those
-- that wait for it have no places here.
--
-- KEYS  1 lock   2 fencing counter
-- ARGV  1 token   2 lease in ms   3 how long the counter outlives the grant, in ms   4 the lowest fencing token to draw
-- Returns  {the server's clock in microseconds, the fencing token} if granted
--          {the server's clock, 0, ms until that may change, or -1 for never} if it is taken
--          the error KEYCONFLICT fencing if the counter's key holds something else

local lock, counter = KEYS[1], KEYS[2]
local token, lease = ARGV[1], ARGV[2]

local drawn = next_fencing_tokens(counter, 1, tonumber(ARGV[4]))
if not drawn then
  return redis.error_reply('KEYCONFLICT fencing')
end
if not call('SET', lock, token, 'NX', 'PX', lease) then
  if call('GET', lock) ~= token then
    return {micros(), 0, call('PTTL', lock)}
  end
  outlast(lock, tonumber(lease))
end
call('SET', counter, string.format('%.0f', drawn), 'PX', ARGV[3])
return {micros(), drawn}
