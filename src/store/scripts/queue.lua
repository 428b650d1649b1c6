-- Who waits for the slot, and what is left to them. Stands before the scripts that need it.
--
-- A waiter is its token in the queue (a sorted set, by place) and "<lives until, in ms> <claim in ms> <permits>
-- <channel>" at its token in a hash. A claim of 0 lasts as long as the waiter lives. A waiter that does not come for
-- its claim counts as dead when that is over, until it asks again.

-- How many are in the queue: nobody, if its key holds something else.
local function length(queue)
  return unless_wrong_type(pcall('ZCARD', queue), 'zcard') or 0
end

-- The queue with what can be done about it. Made only when somebody waits: it is not free of cost.
local function queue_at(queue, waiters)
  local self, slot = {}, slot_for_waiters()

  function self.take_out(token)
    call('ZREM', queue, token)
    call('HDEL', waiters, token)
  end

  local function note(token, lives_until, claim, permits, channel)
    call('HSET', waiters, token, string.format('%.0f %.0f %.0f ', lives_until, claim, permits) .. channel)
  end

  -- Gives the token a place, or keeps it, along with those of its companions: others of the same channel, token and
  -- place, again and again from ARGV[first] on. Whether the keys may be given a TTL at all is found out before the
  -- first write, and each has one before anything else can fail.
  function self.enter(token, place, channel, lasts, claim, first)
    local known = call('ZSCORE', queue, token)
    local own = place or 0
    if own == 0 then
      local youngest = call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
      own = known or math.max(micros(), youngest + 1)
    end
    local function keep(key)
      local ttl = call('PTTL', key)
      call('PEXPIRE', key, math.max(ttl, lasts))
    end
    keep(queue)
    note(token, millis() + lasts, claim, slot_permits, channel)
    keep(waiters)
    call('ZADD', queue, string.format('%.0f', own), token)
    keep(queue)
    for at = first, #ARGV, 2 do
      -- If the caller's place is still there, theirs have not lapsed either: one that is not there has gone.
      if not known or call('ZSCORE', queue, ARGV[at]) then
        note(ARGV[at], millis() + lasts, claim, slot_permits, channel)
        call('ZADD', queue, ARGV[at + 1], ARGV[at])
      end
    end
    return tonumber(own)
  end

  -- The waiter with this token, if it lives. Takes it out if it is dead.
  local function alive(token)
    local details = call('HGET', waiters, token) or ''
    local lives_until, claim, permits, channel = string.match(details, '^(%d+) (%d+) (%d+) (.*)$')
    local left = (tonumber(lives_until) or 0) - millis()
    if left <= 0 then
      self.take_out(token)
      return nil
    end
    local fair = claim == '0'
    claim = fair and left or math.min(tonumber(claim), left)
    return {token = token, channel = channel, left = left, fair = fair, claim = claim, permits = tonumber(permits)}
  end

  -- The one that stands so far behind the first, of those that live.
  local function nth(at)
    while true do
      local token = call('ZRANGE', queue, at, at)[1]
      local waiter = token and alive(token)
      if waiter or not token then
        return waiter
      end
    end
  end

  function self.first()
    return nth(0)
  end

  -- Whether somebody with an older place has to have it first: that one.
  function self.ahead_of(token, place)
    local head = self.first()
    if not head or head.token == token then
      return nil
    end
    local has_older_place = place > 0 and place < tonumber(call('ZSCORE', queue, head.token))
    return not has_older_place and head or nil
  end

  -- Tells a waiter to come, in so many ms; returns whether anybody may have heard it. A node of a cluster counts only
  -- those who listen at itself.
  local function knock(waiter, ms)
    local heard = pcall('PUBLISH', waiter.channel, slot.message(ms, waiter))
    return type(heard) == 'number' and (in_cluster or heard > 0)
  end

  -- Tells the next two other clients whom that would serve when the claim is over, one after the other, lest the slot
  -- lies idle because the owner does not come. All waiters of a client that was stopped are as dead as the first.
  local function alert_others(owner, at)
    local told = {[owner.channel] = true}
    local delay = owner.claim
    for _, token in ipairs(call('ZRANGE', queue, at + 1, at + 8)) do
      local waiter = delay <= 2 * owner.claim and alive(token)
      if waiter and not told[waiter.channel] and slot.has_room(waiter.permits - owner.permits) then
        told[waiter.channel] = true
        delay = knock(waiter, delay) and delay + owner.claim or delay
      end
    end
  end

  -- Takes back what was left to those who wait, the last ones first, as long as more is taken than there is.
  function self.take_back()
    local at = -1
    while slot_is_overdrawn() do
      local token = call('ZRANGE', queue, at, at)[1]
      if not token then
        return
      end
      local permits = string.match(call('HGET', waiters, token) or '', '^%d+ %d+ (%d+)')
      slot.drop_claim(token, tonumber(permits or 1))
      at = at - 1
    end
  end

  -- Leaves what is free to those who wait, as claims, in their order. One that needs more than there is stops the
  -- others if it keeps to its turn, and is passed over if not. One that does not keep to its turn is taken out if
  -- nobody hears the knock. Nothing here can fail for want of memory once the script has written.
  function self.serve()
    local at = 0
    while slot.has_room(1) do
      local waiter = nth(at)
      if not waiter then
        return
      end
      if slot.is_left_to(waiter) then
        at = at + 1
      elseif slot.has_room(waiter.permits) then
        slot.leave_to(waiter)
        note(waiter.token, millis() + waiter.claim, waiter.fair and 0 or waiter.claim, waiter.permits, waiter.channel)
        if knock(waiter, 0) or waiter.fair then
          alert_others(waiter, at)
          at = at + 1
        else
          slot.drop_claim(waiter.token, waiter.permits)
          self.take_out(waiter.token)
        end
      elseif waiter.fair then
        return
      else
        at = at + 1
      end
    end
  end

  -- Takes back what a waiter has, its place and what was left to it, for the others.
  function self.withdraw(token)
    local others = length(queue) > 0
    if others then
      self.take_out(token)
    end
    slot.drop_claim(token, slot_permits)
    if others then
      self.serve()
    end
  end

  return self
end

-- Takes what it holds from the token and leaves it to those who wait. Whether they can be read is found out before the
-- first write.
local function release(token, queue, waiters)
  local line = length(queue) > 0 and queue_at(queue, waiters)
  if line then
    line.first()
  end
  slot_drop(token)
  if line then
    line.serve()
  end
end
