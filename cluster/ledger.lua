-- The second half of the script: see ledger_state.lua. A message of a member is taken in whole, in this order: what it knows and
-- what it remembers, what it granted by itself, corrections, renewed leases, settlements, asks.

-- Corrections.

local function publish(p, lane)
  call('PUBLISH', lane.news, pausetext(p) .. ' ' .. text(now) .. ' ' .. lane.name)
end

local function pause(r, lane, c)
  local p = r.pause
  local epoch, left, cause = c[1], c[2], c[3]
  local told = pausetext(p)
  if epoch > p.epoch then
    if not p.probing then p.since = now end
    p.epoch, p.probing, p.ramp, p.cause = epoch, true, 1, cause
    call('DEL', PROBES)
  end
  p.ends, p.new = math.max(p.ends, now + left), true
  if pausetext(p) ~= told then publish(p, lane) end
end

local function correctslots(r, account, c)
  if not account and c[1] ~= r.slots.version then return end
  r.slots = {version = c[1] + 1, limit = c[2], bad = c[3], refused = c[4], hold = c[5], ends = now + c[6], new = true}
end

local function correctbudget(r, d, c)
  local mark, lo, hi, rate, cap, start = c[1], c[2], c[3], c[4], c[5], c[6]
  local b = r.budgets[d]
  if not b or b.rate == 0 then
    b = {level = start, at = now, rate = 0, cap = cap, period = 0, ends = 0, firm = false}
    r.budgets[d] = b
  end
  refill(b)
  b.rate, b.cap, b.period, b.firm = rate, cap, c[10], c[7] > 0 and d >= DAILY
  if c[11] >= 0 then -- else it is about a window that has ended
    if c[11] > 0 then b.ends = now + c[11] end
    local since = r.spent[d] - mark
    b.level = math.min(math.max(b.level, lo - since), hi - since)
  end
  b.level = math.min(b.level, cap)
  take(b, 0)
  configure(r, d, c[7], c[8], c[9])
end

-- Leases.

-- setback is for an engine whose clock was set back, or whose place one took whose clock is behind: what ends too late by that
-- would keep what the dead had. The living say again what they have.
local function setback(r, all)
  local by = number(string.match(r.f.grain or '0', '%S+')) - now
  if by < SETBACK then return end
  for _, key in ipairs({LEASES, ALL_LEASES}) do
    addall(key, leaseends, call('ZRANGEBYSCORE', key, '(' .. leaseends, '+inf'))
  end
  local seen = call('ZRANGEBYSCORE', MEMBERS, '(' .. nowtext, '+inf')
  remove(MEMBERS, seen)
  remove(RANKS, seen)
  call('DEL', WAITING, ORDER, IDLE, WEIGHTS)
  r.pause.ends, r.pause.new, r.silence.new = r.pause.ends - by, true, true
  for _, b in pairs(r.budgets) do b.ends, b.new = math.max(0, b.ends - by), true end
  all.hold = math.min(all.hold, now + HEARTBEAT)
  r.grain = nowtext .. ' ' .. join(r.spent)
  r.last, r.f.grain = r.grain, nil
end

-- expire takes back what the dead hold.
local function expire()
  local dead = call('ZRANGEBYSCORE', LEASES, '-inf', nowtext)
  if #dead > 0 then
    remove(LEASES, dead)
    remove(PROBES, dead)
  end
  call('ZREMRANGEBYSCORE', ALL_LEASES, '-inf', nowtext)
end

local function guardboth(r, all, sent, amounts)
  if r.guards then guard(r, sent, amounts) end
  if all.guards then guard(all, sent, amounts) end
end

-- settle ends a lease. A request without a lease was settled, or its lease has expired.
local function settle(r, all, lane, lease, s)
  if not call('ZSCORE', LEASES, lease) then return end
  local proven, open = s[1] == 1, s[2] == 1
  if #s > 2 then
    local amounts = {unpack(s, 3, 8)}
    refund(r, amounts)
    refund(all, amounts)
  end
  if #s > 8 then guardboth(r, all, now - s[9], {unpack(s, 10)}) end
  local p = r.pause
  if proven and r.silence.wait ~= FIRST_SILENCE then r.silence.wait, r.silence.new = FIRST_SILENCE, true end
  if proven and call('ZSCORE', PROBES, lease) then
    p.ramp, p.new = p.ramp * 4, true
    if p.ramp >= r.slots.limit then
      p.probing = false
      call('DEL', PROBES)
    end
  end
  if proven and r.silence.test == lease then
    r.silence.test, r.silence.new = '', true
    if p.ends > now then -- the pause is disproved
      p.ends, p.new = now, true
      publish(p, lane)
    end
  end
  if proven or not open then call('ZREM', PROBES, lease) end
  if not open then
    call('ZREM', LEASES, lease)
    call('ZREM', ALL_LEASES, lease)
  end
end

-- Turns. ORDER and IDLE have the members that wait by how much they were served, WAITING by when they lose their place. Who
-- does not wait is remembered in SERVED for as long as that is above what is served now.

local function forget(r)
  local late = call('ZRANGEBYSCORE', WAITING, '-inf', nowtext)
  for _, member in ipairs(late) do
    local served = number(call('ZSCORE', ORDER, member) or '0')
    if served > r.virtual then zadd(SERVED, text(served), member) end
  end
  if #late > 0 then
    remove(WAITING, late)
    for _, member in ipairs(late) do call('HDEL', WEIGHTS, member) end
    remove(ORDER, late)
    remove(IDLE, late)
  end
end

-- turn returns how much a member was served, and takes it out of those that wait. The call that it was served last counts for
-- what a call counts for now: when a batch begins, its first call is all that waits.
local function turn(r, member, step)
  local served = call('ZSCORE', ORDER, member)
  if served then
    call('ZREM', ORDER, member)
    call('ZREM', WAITING, member)
    call('ZREM', IDLE, member)
  else
    served = math.max(number(call('ZSCORE', SERVED, member) or '0'), r.virtual)
    call('ZREM', SERVED, member)
  end
  return math.min(number(served), r.virtual + step)
end

-- before returns what had been spent 50 to 100 ms ago, after that instant.
local function before(r)
  local f = r.f
  local age = now - number(string.match(f.grain or '0', '%S+'))
  if age < GRAIN then return f.last end
  r.grain = nowtext .. ' ' .. join(r.spent)
  r.last = age >= 2 * GRAIN and r.grain or f.grain
  return r.last
end

-- ahead is how many calls are left to the members that wait and go before this one, which is in ORDER: one to each, and to the
-- first of them what it takes to catch up. Who was served alike goes by name. Second is what the call of that first one costs, if
-- that is known: if no more than a usual call's cost were left to it, small calls of others would keep a large one waiting for ever.
local function ahead(r, member, served)
  local rank = call('ZRANK', ORDER, member)
  if rank == 0 then return 0 end
  local first = call('ZRANGE', ORDER, '0', '0', 'WITHSCORES')
  local waiting = number(call('HGET', WEIGHTS, first[1]) or '1')
  local missed = math.floor((served - number(first[2])) * waiting)
  local known, cost = string.match(r.f.first or '', '^(%S+) (.+)$')
  return rank - 1 + math.max(1, math.min(missed, waiting)), known == first[1] and vector(cost) or nil
end

-- waitinturn is how long until cost fits beside what is left to other members, which may be gone: so many calls.
local function waitinturn(record, cost, left, mean, first)
  local wait, bound = behind(record, cost, left, mean, first)
  if wait > LONGEST_TURN then wait = math.min(wait, behind(record, cost, 0, mean) + LONGEST_TURN) end
  return wait, bound
end

-- waitguards is how long until configured limits have room for a call, if that is longer than it waits anyway.
local function waitguards(r, all, amounts, wait, bound)
  for _, record in ipairs({r, all}) do
    if record.guards then
      local w, d = guarded(record, amounts)
      if w > wait then wait, bound = w, d end
    end
  end
  return wait, bound
end

-- daily is how long until the configured limits per day have room for cost.
local function daily(r, cost)
  local longest, bound = 0, 0
  for d = DAILY, DIMENSIONS do
    local b = r.budgets[d]
    if b and b.firm and b.rate ~= 0 and cost[d] ~= 0 then
      local short = math.min(cost[d], b.cap) - b.level - 1e-9
      if short > 0 and lasts(b, short) > longest then longest, bound = lasts(b, short), d + 1 end
    end
  end
  return longest, bound
end

-- hold is how long a call has to wait, and for what. What those need that go before it is left to them. Third is whether it is granted
-- all the same, to test the belief that it would wait for.
local function hold(r, all, member, served, ask, t)
  local cost = ask.cost
  if all.hold > now then return (t.test > 0 and all.hold or math.max(r.pause.ends, all.hold)) - now, 0 end
  local left, first = 0, nil
  if t.others > 0 then
    zadd(ORDER, text(served), member)
    left, first = ahead(r, member, served)
  end
  local belief, believed = math.max(0, r.pause.ends - now), 0
  if belief == 0 and r.pause.probing and t.probes >= r.pause.ramp then return PROBE_WAIT, 0 end
  local w, d = waitinturn(r, cost, left, r.mean, first)
  if w > belief then belief, believed = w, d end
  local wait, bound = belief, believed
  if t.test > 0 and belief > LEAST_TESTED then
    local silence = r.silence.wait > FIRST_SILENCE and r.silence.wait or t.test
    wait = math.max(0, math.min(r.silence.since + silence - now, belief))
    local firm, day = daily(r, cost)
    if firm > wait then wait, bound = firm, day end
  end
  w, d = waitinturn(all, cost, left, r.mean, first)
  if w > wait then wait, bound = w, d end
  if t.guarded then wait, bound = waitguards(r, all, ask.guarded, wait, bound) end
  if wait > 0 then return wait, bound end -- who comes when its budget is there looks for a slot then
  if t.room < 1 then return math.min(SLOT_WAIT + left * SLOT_TURN, LONGEST_SLOT_WAIT), 1 end
  if t.room < 1 + left then return math.min(LATENESS + left * SLOT_TURN, LONGEST_SLOT_WAIT), 1 end -- unless they do not come
  return belief, believed, belief > 0
end

local function grant(r, all, ask)
  local cost = ask.cost
  guardboth(r, all, now, ask.guarded)
  for d = 1, DIMENSIONS do
    local step = 0.1 * (cost[d] - r.mean[d])
    if step ~= 0 then r.mean[d], r.meannew = r.mean[d] + step, true end
  end
  charge(r, cost)
  charge(all, cost)
end

-- grantall grants the longest prefix of asks that fits.
local function grantall(r, all, member, waiting, asks, test)
  r.mean, r.known = vector(r.f.mean), r.f.mean ~= nil
  local step = 1 / math.max(1, waiting)
  local served = turn(r, member, step)
  local t = {test = test, guarded = r.guards or all.guards, others = call('ZCARD', ORDER), probes = call('ZCARD', PROBES), room = math.min(room(r), room(all))}
  local reply = {granted = 0, wait = 0, bound = 0, again = {}, leases = {}, spent = join(r.spent), before = before(r)}
  for i, ask in ipairs(asks) do
    if ask.held then -- the reply was lost
      reply.again[#reply.again + 1] = tostring(i)
    else
      if not r.known then r.mean, r.meannew, r.known = {unpack(ask.cost)}, true, true end -- before the first grant
      local tested
      reply.wait, reply.bound, tested = hold(r, all, member, served, ask, t)
      if reply.wait > 0 and not tested then break end
      grant(r, all, ask)
      r.silence.since, r.silence.new = now, true
      if tested then r.silence.test, r.silence.wait = ask.lease, math.min(2 * math.max(r.silence.wait, FIRST_SILENCE), LONGEST_SILENCE) end
      reply.leases[#reply.leases + 1] = ask.lease
      t.room = t.room - 1
      if r.pause.probing then t.probes = t.probes + 1 end
      r.virtual, r.virtualnew = math.max(r.virtual, served), true
      served = served + step
    end
    reply.granted = i
  end
  addall(LEASES, leaseends, reply.leases)
  addall(ALL_LEASES, leaseends, reply.leases)
  if r.pause.probing then addall(PROBES, '0', reply.leases) end
  if reply.granted < #asks or waiting > #asks then -- in the latter case it asks again at once
    local wait = reply.granted < #asks and reply.wait or 0
    zadd(WAITING, text(now + wait + LATENESS), member)
    zadd(ORDER, text(served), member)
    written[WEIGHTS] = true
    call('HSET', WEIGHTS, member, text(math.max(1, waiting)))
    local next = asks[reply.granted + 1]
    if next and call('ZRANGE', ORDER, '0', '0')[1] == member then r.first = member .. ' ' .. join(next.cost) end
    if reply.bound == 1 and wait > 0 or reply.bound == 0 and wait == PROBE_WAIT then zadd(IDLE, text(served), member) end
  else
    if t.others > 0 then call('ZREM', ORDER, member) end
    call('HDEL', WEIGHTS, member)
    if served > r.virtual then zadd(SERVED, text(served), member) end
  end
  if r.virtualnew then call('ZREMRANGEBYSCORE', SERVED, '-inf', text(r.virtual)) end
  return reply
end

-- wake names the member that goes first of those that wait for what others give back, if there is some. It keeps its place for
-- a moment. Who asks is told by its reply.
local function wake(r, all, asks)
  if call('ZCARD', IDLE) == 0 or math.max(r.pause.ends, all.hold) > now then return nil end
  local free = math.min(room(r), room(all))
  if free < 1 then return nil end
  if r.pause.probing and call('ZCARD', PROBES) >= r.pause.ramp then return nil end
  local idle = call('ZRANGE', IDLE, '0', '1')
  local first = idle[1] == asks and idle[2] or idle[1]
  if first == asks then return nil end
  if free < 1 + ahead(r, first, number(call('ZSCORE', ORDER, first))) then return nil end -- those that were woken before have it
  call('ZREM', IDLE, first)
  if now + LATENESS < number(call('ZSCORE', WAITING, first)) then zadd(WAITING, text(now + LATENESS), first) end
  return first
end

-- Members.

-- enter counts a member, and forgets those that were silent for too long. It returns how many there are, and the member's rank.
local function enter(member)
  if zadd(MEMBERS, nowtext, member) == 1 then zadd(RANKS, '0', member) end
  local gone = call('ZRANGEBYSCORE', MEMBERS, '-inf', text(now - LEASE), 'LIMIT', '0', '500')
  if #gone > 0 then
    remove(MEMBERS, gone)
    remove(RANKS, gone)
  end
  return call('ZCARD', MEMBERS), call('ZRANK', RANKS, member)
end

-- The message. Each part begins with the number of its entries.

if nextarg() ~= FORMAT then return redis.error_reply('FORMAT the message is of another version than the script') end
local member, lane = nextarg(), {}
lane.name, lane.news, lane.wake = nextarg(), nextarg(), nextarg()
local restarted = nextarg() == '1'

local r, all = load(KEYS[1], LEASES), load(KEYS[8], ALL_LEASES)
if r.format ~= FORMAT or all.format ~= FORMAT then
  local other = r.format ~= FORMAT and r.format or all.format
  return redis.error_reply('FORMAT the keys at ' .. KEYS[8] .. ' are of version ' .. other .. ', and this program is of version ' .. FORMAT)
end
-- Members that begin together all find an engine without the script; then there is nothing yet that it can have lost.
if restarted and now - number(all.generation) > BEGINNING then all.hold = now + HEARTBEAT end

-- A member says what it knows of either record. If that is more than the engine does, it is asked for all of it.
local function known(record)
  local k = {generation = nextarg(), spent = vector(nextarg()), version = number(nextarg()), epoch = number(nextarg()),
    guards = number(nextarg())}
  k.same = k.generation == '' or k.generation == record.generation
  k.more = not k.same or k.version > record.slots.version or k.epoch > record.pause.epoch
  if k.guards > 0 then -- the content of its guards counts
    for d = 1, #GUARDS do k.more = k.more or k.spent[d] > record.spent[d] end
  end
  return k
end

local knows, knowsall = known(r), known(all)
local memories = {{}, {}}
for i = 1, 2 do
  for _ = 1, number(nextarg()) do
    local name = nextarg()
    memories[i][name] = nextarg()
  end
end
if (knows.more and not next(memories[1])) or (knowsall.more and not next(memories[2])) then return {'restore'} end
if knows.more then restoreguards(r, knows.spent, memories[1]) end
if knowsall.more then restoreguards(all, knowsall.spent, memories[2]) end
if knows.same then seen(r, all, knows.spent) end
if knowsall.same then seen(all, all, knowsall.spent) end
if knows.more then restore(r, all, knows.generation, memories[1]) end
if knowsall.more then restore(all, all, knowsall.generation, memories[2]) end

setback(r, all)
expire()
forget(r)

-- What the member granted by itself while the engine was gone, of which a part has not flowed in again.
local outage, owed, spent = nextarg(), {vector(nextarg()), vector(nextarg())}, vector(nextarg())
local sentalone = {} -- in the longest period of a configured limit, by parts of it
for i = 1, number(nextarg()) do sentalone[i] = {age = number(nextarg()), amounts = vector(nextarg())} end
if outage ~= '' and zadd(OUTAGES, 'NX', nowtext, member .. ':' .. outage) == 1 then
  call('ZREMRANGEBYSCORE', OUTAGES, '-inf', text(now - KEPT * 1e6))
  for i, record in ipairs({r, all}) do
    charge(record, owed[i])
    for d = 1, DIMENSIONS do
      record.spent[d], record.spentnew = record.spent[d] + spent[d] - owed[i][d], true
    end
  end
  for _, s in ipairs(sentalone) do guardboth(r, all, now - s.age, s.amounts) end
  -- If nobody has asked for a while, Redis was gone for all members: others come back within a heartbeat and say what they sent.
  if #sentalone > 0 and now - number(string.match(r.f.grain or '0', '%S+')) > HEARTBEAT / 2 then all.hold = math.max(all.hold, now + HEARTBEAT) end
end

for _ = 1, number(nextarg()) do
  local account, dimension, c = nextarg() == '1', nextarg(), numbers(nextarg())
  local record = account and all or r
  if dimension == ANY then
    pause(record, lane, c)
  elseif dimension == CONCURRENCY then
    correctslots(record, account, c)
  else
    correctbudget(record, number(dimension) - 1, c)
  end
end

local renewed = {}
for i = 1, number(nextarg()) do renewed[i] = member .. ':' .. nextarg() end
addall(LEASES, leaseends, renewed)
addall(ALL_LEASES, leaseends, renewed)

for _ = 1, number(nextarg()) do
  local lease = member .. ':' .. nextarg()
  settle(r, all, lane, lease, numbers(nextarg()))
end

-- readcost reads a cost, and the amounts that configured limits count, where they are others.
local function readcost(s)
  local cost, others = six(s), string.match(s, '| (.+)')
  return {cost = cost, guarded = others and six(others) or cost}
end

local waiting, test, asks, costs = number(nextarg()), number(nextarg()), {}, {}
for i = 1, number(nextarg()) do
  local lease, cost = member .. ':' .. nextarg(), nextarg()
  local amounts = costs[cost] or readcost(cost) -- many cost the same
  costs[cost] = amounts
  asks[i] = {lease = lease, cost = amounts.cost, guarded = amounts.guarded, held = call('ZSCORE', LEASES, lease)}
end
local reply = {granted = 0, wait = 0, bound = 0, again = {}, spent = '', before = ''}
if #asks > 0 then reply = grantall(r, all, member, waiting, asks, test) end

local awake = wake(r, all, #asks > 0 and member or '')
if awake and awake ~= member then call('PUBLISH', lane.wake .. awake, lane.name) end
local members, rank = enter(member)

-- Writing, and the reply: the records as the member is to remember them, and what it asked for.

local old = number(r.f.kept or '0') + KEPT / 48 * 1e6 < now
save(r)
save(all)
if old then
  call('HSET', r.key, 'kept', nowtext)
  for _, key in ipairs(KEYS) do call('EXPIRE', key, KEPT) end
end
for key in pairs(written) do call('EXPIRE', key, KEPT, 'NX') end

local out = {'ok', nowtext, tostring(reply.granted), text(reply.wait), tostring(reply.bound), table.concat(reply.again, ' '),
  reply.spent, reply.before, tostring(call('ZCARD', LEASES)), awake or '', call('ZCARD', IDLE) > 0 and '1' or '0', tostring(members),
  tostring(rank)}
for i, record in ipairs({r, all}) do
  local told = (i == 1 and knows or knowsall).guards
  record.f.guards = nil
  if record.guards and next(record.guards) and math.abs(nowpart - told) >= REMEMBERED then
    record.f.guards = contentof(record)
  elseif told > 0 and not (record.guards and next(record.guards)) then
    record.f.guards = '0' -- there are none
  end
  for _, name in ipairs({'generation', 'spent', 'slots', 'pause', 'b1', 'b2', 'b3', 'b4', 'b5', 'b6', 'guards'}) do
    out[#out + 1] = record.f[name] or ''
  end
end
return out
