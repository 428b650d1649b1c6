-- Sees to it that the next fencing token which is drawn here is above the given one; with a lease also puts the lock
-- here that a majority of the other servers has granted, if it is free.
--
-- KEYS  1 lock   2 fencing counter
-- ARGV  1 token   2 fencing token   3 how long the counter outlives the grant, in ms
--       4 what is left of the lease, in ms; may be left out
-- Returns  1 if the lock is the token's   0 if it is free   -1 if something else stands there
--          the error KEYCONFLICT fencing if the counter's key holds something else

local lock, counter = KEYS[1], KEYS[2]
local token, fencing_token, lease = ARGV[1], tonumber(ARGV[2]), ARGV[4]

local next_token = next_fencing_tokens(counter, 1)
if not next_token then
  return redis.error_reply('KEYCONFLICT fencing')
end
local holder = unless_wrong_type(pcall('GET', lock), 'get')
if lease and holder == false then
  call('SET', lock, token, 'NX', 'PX', lease)
  holder = token
end
local drawn = call('GET', counter)
if not drawn or tonumber(drawn) < fencing_token then
  call('SET', counter, ARGV[2], 'PX', ARGV[3])
end
return holder == token and 1 or holder == false and 0 or -1
