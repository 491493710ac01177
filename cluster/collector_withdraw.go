package cluster

import (
	"context"
	"strconv"

	"github.com/sluice-llm/sluice/internal/wake"
)

// scriptWithdraw takes tasks back that no worker has, and stops at 4 MB of them. ARGV from 4: about how many at most. The answer
// has, from 3, 1 if there may be more.
var scriptWithdraw = newScript(collectorStart + `
local most, back = tonumber(ARGV[4]), 0
local function forget(id, n)
	call('XACK', tasks, 'w', id)
	call('XDEL', tasks, id)
	call('HDEL', tries, id)
	if call('GETBIT', done, n) == 0 then call('SETBIT', queued, n, '0') end
	back = back + 1
end
for _, id in ipairs(call('ZRANGE', later, 0, most - 1)) do
	call('ZREM', later, id)
	local e = call('XRANGE', tasks, id, id)[1]
	if e then forget(id, e[2][1]) end
end
local size = 0
while back < most and size < 4194304 do
	local new = call('XREADGROUP', 'GROUP', 'w', 'withdrawn', 'COUNT', 8, 'STREAMS', tasks, '>')
	if not new then return {'ok', seq, 0} end
	for _, e in ipairs(new[1][2]) do
		size = size + #e[2][2]
		forget(e[1], e[2][1])
	end
end
return {'ok', seq, 1}
`)

// scriptQueued says which numbers the engine has neither as tasks nor with a result. ARGV from 4: the numbers. The answer has
// them from 3.
var scriptQueued = newScript(collectorStart + `
local out = {'ok', seq}
for i = 4, #ARGV do
	if call('GETBIT', queued, ARGV[i]) == 0 then out[#out+1] = ARGV[i] end
end
return out
`)

// Withdraw withdraws all tasks that no worker has received. Results yields withdrawn tasks with Outcome.Withdrawn. During a
// concurrent Add, a worker may process a withdrawn task. To get its result, add the task again. If Withdraw fails, call it again.
func (k *Collector) Withdraw(ctx context.Context) error {
	if err := k.adds.wait(ctx); err != nil {
		return err
	}
	for {
		answer, err := k.ask(ctx, scriptWithdraw, strconv.Itoa(addBatch))
		if err != nil {
			return err
		}
		if answer == nil { // the engine had lost something, and is told again
			if err := k.adds.wait(ctx); err != nil {
				return err
			}
			continue
		}
		if answer[2].number() == 0 {
			break
		}
	}
	// What came back is asked for by itself: of an answer that was lost, nobody would know.
	k.mu.Lock()
	open := make([]string, 0, len(k.open))
	for n := range k.open {
		open = append(open, itoa(n))
	}
	k.mu.Unlock()
	for len(open) > 0 {
		some := open[:min(addBatch, len(open))]
		answer, err := k.ask(ctx, scriptQueued, some...)
		if err != nil {
			return err
		}
		if answer == nil {
			return k.Withdraw(ctx)
		}
		open = open[len(some):]
		k.withdrawn(answer[2:])
	}
	return nil
}

// withdrawn has Results give tasks that were taken back.
func (k *Collector) withdrawn(numbers []reply) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range numbers {
		n, err := strconv.ParseInt(m.text, 10, 64)
		if payload, open := k.open[n]; err == nil && open {
			delete(k.open, n)
			k.bytes -= len(payload)
			k.ready = append(k.ready, Outcome{Number: n, Withdrawn: true})
			k.makeRoomLocked()
		}
	}
	wake.Up(k.news)
}
