package cluster

import (
	"context"
)

// scriptRecorded tells an engine that was set back which numbers have a result that it need not have any more: those that it
// still, or again, has as tasks are given to nobody. ARGV from 4: the numbers.
var scriptRecorded = newScript(collectorStart + `
for i = 4, #ARGV do
	call('SETBIT', queued, ARGV[i], '1')
	call('SETBIT', done, ARGV[i], '1')
end
return {'ok', seq}
`)

// recentWindows is how many windows of recorded numbers are kept for an engine that forgets them: it goes back by seconds.
const recentWindows = 4

// recent are the numbers that were recorded last. The zero value is empty.
type recent struct {
	all  []int64
	next int // of all, when it is full
}

// add takes a number in, in the place of the oldest where there are so many.
func (r *recent) add(n int64, most int) {
	if len(r.all) < most {
		r.all = append(r.all, n)
		return
	}
	r.all[r.next] = n
	r.next = (r.next + 1) % most
}

// tellRecorded tells an engine that has lost something what was recorded last. What it does not hear is called, and paid, again,
// and no more than that: the result that was recorded stays.
func (k *Collector) tellRecorded(ctx context.Context) error {
	k.mu.Lock()
	numbers := make([]string, 0, len(k.recent.all))
	for _, n := range k.recent.all {
		if _, open := k.open[n]; !open {
			numbers = append(numbers, itoa(n))
		}
	}
	k.mu.Unlock()
	for len(numbers) > 0 {
		some := numbers[:min(addBatch, len(numbers))]
		numbers = numbers[len(some):]
		answer, err := k.link.do(ctx, scriptRecorded, k.keys, k.credentials(some...))
		if err != nil {
			return err
		}
		if answer[0].text != "ok" { // it has lost it once more, or another collector has the job: the next question finds that
			return nil
		}
		k.mu.Lock()
		k.seq = max(k.seq, answer[1].number())
		k.mu.Unlock()
	}
	return nil
}
