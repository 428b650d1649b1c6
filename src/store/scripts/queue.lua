-- Who waits for the lock, and what its release leaves to them. Stands before the scripts that need it.
--
-- A waiter is its token in the queue (a sorted set, by place) and "<lives until, in ms> <claim in ms> <channel>" at its
-- token in a hash. A claim of 0 lasts as long as the waiter lives. A waiter that does not come for its claim counts
-- as dead when that is over, until it asks again.

local call, pcall = redis.call, redis.pcall

-- The queue with what can be done about it, at this time. Made only when somebody waits: it is not free of cost.
local function queue_at(queue, waiters, time)
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local self = {now = now}

  function self.claim_of(token)
    return 'redlatch:claim:' .. token
  end

  function self.take_out(token)
    call('ZREM', queue, token)
    call('HDEL', waiters, token)
  end

  -- The waiter with this token, if it lives. Takes it out if it is dead.
  function self.alive(token)
    local details = call('HGET', waiters, token) or ''
    local lives_until, claim, channel = string.match(details, '^(%d+) (%d+) (.*)$')
    local left = (tonumber(lives_until) or 0) - now
    if left <= 0 then
      self.take_out(token)
      return nil
    end
    local fair = claim == '0'
    claim = fair and left or math.min(tonumber(claim), left)
    return {token = token, channel = channel, left = left, fair = fair, claim = claim}
  end

  -- The first waiter that lives.
  function self.first()
    while true do
      local token = call('ZRANGE', queue, 0, 0)[1]
      local waiter = token and self.alive(token)
      if waiter or not token then
        return waiter
      end
    end
  end

  -- Tells a waiter to come for the lock, in so many ms; returns whether anybody may have heard it.
  function self.knock(waiter, lock, ms)
    -- Put together by hand: %s would end at a zero byte.
    local heard = pcall('PUBLISH', waiter.channel, string.format('%.0f ', ms) .. waiter.token .. ' ' .. lock)
    return type(heard) == 'number' and heard > 0
  end

  -- Tells the next two other clients when the claim is over, one after the other, lest the lock lies idle because its
  -- owner does not come. All waiters of a client that was stopped are as dead as the first.
  function self.alert_others(lock, owner)
    local told = {[owner.channel] = true}
    local delay = owner.claim
    for _, token in ipairs(call('ZRANGE', queue, 1, 8)) do
      local waiter = delay <= 2 * owner.claim and self.alive(token)
      if waiter and not told[waiter.channel] then
        told[waiter.channel] = true
        delay = self.knock(waiter, lock, delay) and delay + owner.claim or delay
      end
    end
  end

  -- Leaves the lock, which was deleted, to this waiter as a claim: whoever else comes finds it taken. A waiter that does not keep to its turn is taken out if nobody hears the knock.
  -- Nothing here can fail for want of memory, since the script has deleted something.
  function self.serve(lock, waiter)
    while waiter do
      call('SET', lock, self.claim_of(waiter.token), 'PX', waiter.claim)
      local times = string.format('%.0f %.0f ', now + waiter.claim, waiter.fair and 0 or waiter.claim)
      call('HSET', waiters, waiter.token, times .. waiter.channel)
      if self.knock(waiter, lock, 0) or waiter.fair then
        return self.alert_others(lock, waiter)
      end
      call('DEL', lock)
      self.take_out(waiter.token)
      waiter = self.first()
    end
  end

  return self
end

-- How many are in the queue: nobody, if its key holds something else.
local function length(queue)
  local waiting = pcall('ZCARD', queue)
  if type(waiting) == 'table' and not string.find(waiting.err, 'WRONGTYPE') then
    -- Not permitted. Fails again, and tells where.
    return call('ZCARD', queue)
  end
  return type(waiting) == 'table' and 0 or waiting
end

-- Takes the lock from its holder and leaves it to those who wait. Who that is was read before the first write.
local function hand_over(lock, queue, waiters)
  if length(queue) == 0 then
    call('DEL', lock)
    return
  end
  local line = queue_at(queue, waiters, call('TIME'))
  local waiter = line.first()
  call('DEL', lock)
  line.serve(lock, waiter)
end

-- Takes back what a waiter has: its place, and the lock if that was left to it.
local function withdraw(lock, queue, waiters, token)
  local line = queue_at(queue, waiters, call('TIME'))
  if length(queue) > 0 then
    line.take_out(token)
  end
  if call('GET', lock) == line.claim_of(token) then
    hand_over(lock, queue, waiters)
  end
end

-- Notes that the holder has released the lock, so that a repetition knows it. With GET a key of another type is left as it
-- is: it is not ours to overwrite. Without memory for the mark the release stands all the same.
local function leave_mark(mark, own_mark, ms)
  pcall('SET', mark, own_mark, 'PX', ms, 'GET')
end

-- The first of so many fencing tokens in a row, and the last; nil if the counter's key holds something else.
--
-- The clock is ahead of every token ever drawn (no name is granted, or handed on, once a microsecond), so tokens keep
-- rising when the counter is lost or old; the counter keeps them rising when the clock steps back.
local function next_fencing_tokens(counter, time, count)
  local last = pcall('GET', counter)
  if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE') then
    -- Not permitted. Fails again, and tells where.
    return call('GET', counter)
  end
  last = type(last) ~= 'table' and tonumber(string.match(last or '0', '^%d+$'))
  if not (last and last < 2 ^ 53) then
    return nil
  end
  local first = math.max(last + 1, time[1] * 1000000 + time[2])
  return first, first + count - 1
end
