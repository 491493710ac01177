package cluster

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// Bounds of one script's work, so that it does not hold up others: some milliseconds of the engine's time. A page of results
// is smaller, as each is up to MaxPayload.
const (
	addBatch   = 500
	batchBytes = 4 << 20
	page       = 256
)

// succeed adopts the job, of a collector that died too.
func (k *Collector) succeed(ctx context.Context) error {
	for end, told := time.Now().Add(k.terms.lease+k.terms.renewal), false; ; {
		err := k.adopt(ctx)
		held, ok := errors.AsType[*HeldError](err)
		if !ok || time.Now().After(end) {
			return err
		}
		if !told {
			k.link.log.Warn("waiting until another collector releases the job", "job", held.Job, "host", held.Host, "pid", held.PID, "most", k.terms.lease)
			told = true
		}
		if err := wake.In(ctx, k.terms.lease/30, nil); err != nil {
			return err
		}
	}
}

// adopt makes this collector the job's, at first and whenever the engine has lost it.
func (k *Collector) adopt(ctx context.Context) error {
	answer, err := k.link.do(ctx, scriptCollect, k.keys, func() []string {
		k.mu.Lock()
		defer k.mu.Unlock()
		return []string{strconv.Itoa(Version), k.owner, hostname(), strconv.Itoa(os.Getpid()), k.cfg.Name, k.cfg.Input,
			string(k.cfg.Settings), strconv.Itoa(k.cfg.Window), milliseconds(k.terms.lease), itoa(k.token), itoa(k.seq)}
	})
	if err != nil {
		return err
	}
	switch answer[0].text {
	case "version":
		return &VersionError{Job: k.cfg.Name, Has: int(answer[1].number()), Want: Version}
	case "held":
		return &HeldError{Job: k.cfg.Name, Host: answer[1].text, PID: int(answer[2].number())}
	case "input":
		return ErrOtherInput
	case "fenced":
		return ErrFenced
	}
	k.mu.Lock()
	k.token, k.seq = answer[1].number(), max(k.seq, answer[2].number())
	k.mu.Unlock()
	_, err = k.link.do(ctx, scriptRegister, []string{registry}, func() []string { return []string{k.cfg.Name, jobsChannel} })
	return err
}

// rebuild tells an engine that was emptied, or that has lost its last moments, what it has to know: the job, what was recorded
// just before, and the tasks without an outcome. Those that it still has are not added twice.
func (k *Collector) rebuild(ctx context.Context, era int) error {
	k.rebuilding.Lock()
	defer k.rebuilding.Unlock()
	k.mu.Lock()
	done := k.era != era
	k.mu.Unlock()
	if done {
		return nil
	}
	k.link.log.Warn("Redis lost tasks or results: adding the tasks without a result again", "job", k.cfg.Name)
	if err := k.adopt(ctx); err != nil {
		return err
	}
	if err := k.tellRecorded(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	k.era++
	k.cursor = "0"
	again := k.openLocked()
	k.mu.Unlock()
	k.adds.put(again...)
	return nil
}

// ask runs a script that only the job's collector may run. No answer and no error: the engine had lost something and was
// rebuilt, so that the caller asks again if it still wants to.
func (k *Collector) ask(ctx context.Context, script *script, args ...string) ([]reply, error) {
	k.mu.Lock()
	era := k.era
	k.mu.Unlock()
	answer, err := k.link.do(ctx, script, k.keys, k.credentials(args...))
	if err != nil {
		return nil, err
	}
	switch answer[0].text {
	case "fenced":
		return nil, ErrFenced
	case "gone":
		return nil, k.rebuild(ctx, era)
	}
	k.mu.Lock()
	k.seq = max(k.seq, answer[1].number())
	k.mu.Unlock()
	return answer, nil
}

// fail ends the collector for what no waiting repairs. It is no failure that it was closed meanwhile.
func (k *Collector) fail(ctx context.Context, err error) {
	if ctx.Err() == nil {
		k.end(err)
	}
}

// flushAdds adds a batch of tasks. What is lost on the way is added again by rebuild.
func (k *Collector) flushAdds(ctx context.Context, batch []addition) {
	args := make([]string, 1, 1+2*len(batch))
	args[0] = flag(batch[0].anyway)
	k.mu.Lock()
	for _, a := range batch {
		if _, open := k.open[a.number]; open && a.anyway == batch[0].anyway {
			args = append(args, itoa(a.number), asString(a.payload))
		} else if open {
			k.adds.put(a) // in a batch of its kind
		}
	}
	k.mu.Unlock()
	if len(args) == 1 {
		return
	}
	answer, err := k.ask(ctx, scriptAdd, args...)
	if err == nil && len(answer) > 2 {
		err = k.doubt(ctx, answer[2:])
	}
	if err != nil {
		k.fail(ctx, err)
	}
}

// doubt looks after numbers that the engine has a result of, although they were only now added. The result is on its way
// here, or was removed and never recorded (the record was lost, or is to be made anew): then the task is added anyway.
func (k *Collector) doubt(ctx context.Context, numbers []reply) error {
	if err := k.catchUp(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range numbers {
		n, err := strconv.ParseInt(m.text, 10, 64)
		if err != nil {
			return err
		}
		if payload, open := k.open[n]; open {
			k.adds.put(addition{number: n, payload: payload, anyway: true})
		}
	}
	return nil
}

// flushTrims removes a batch of recorded results. What an engine that was set back still has comes again, and is removed then.
func (k *Collector) flushTrims(ctx context.Context, batch []entry) {
	args, bytes := make([]string, 1, 1+len(batch)), 0
	for _, e := range batch {
		args = append(args, e.id)
		bytes += e.bytes
	}
	args[0] = strconv.Itoa(-bytes) // here, as Lua makes "-0" of 0, which is no integer for the engine
	if _, err := k.ask(ctx, scriptTrim, args...); err != nil {
		k.fail(ctx, err)
	}
}

// read takes in results as they come. It waits at the engine.
func (k *Collector) read(ctx context.Context) {
	for ctx.Err() == nil {
		k.mu.Lock()
		era, cursor := k.era, k.cursor
		k.mu.Unlock()
		var answer []reply
		err := k.link.persist(ctx, func(ctx context.Context) (err error) {
			answer, err = k.link.client.read(ctx, k.keys[2], cursor)
			return err
		})
		if err != nil {
			k.fail(ctx, err)
			return
		}
		if len(answer) == 0 {
			continue
		}
		k.intake(parseResults(answer))
		k.mu.Lock()
		if k.era == era && k.cursor == cursor {
			k.cursor = idOf(answer[len(answer)-1])
		}
		k.mu.Unlock()
	}
}

// catchUp takes in all results that there are.
func (k *Collector) catchUp(ctx context.Context) error {
	for from := "-"; ; {
		var answer []reply
		err := k.link.persist(ctx, func(ctx context.Context) error {
			got, err := k.link.client.do(ctx, "XRANGE", k.keys[2], from, "+", "COUNT", strconv.Itoa(page))
			answer = got.list
			return err
		})
		if err != nil || len(answer) == 0 {
			return err
		}
		k.intake(parseResults(answer))
		from = "(" + idOf(answer[len(answer)-1])
	}
}

// idOf returns the id of an entry of a stream.
func idOf(entry reply) string { return entry.list[0].text }

// parseResults leaves out what Sluice has not written.
func parseResults(answer []reply) []result {
	results := make([]result, 0, len(answer))
	for _, e := range answer {
		r := result{entry: entry{id: idOf(e)}}
		r.Number, r.Deliveries = -1, 1
		fields := e.list[1].list
		for i := 0; i+1 < len(fields); i += 2 {
			field, value := fields[i].text, fields[i+1].text
			switch {
			case i == 0:
				if n, err := strconv.ParseInt(field, 10, 64); err == nil {
					r.Number, r.Payload, r.bytes = n, []byte(value), len(value)
				}
			case field == "d":
				r.Deliveries, _ = strconv.Atoi(value)
			case field == "x":
				r.Poison, r.Payload, r.Worker = true, nil, value
			}
		}
		if r.Number >= 0 {
			results = append(results, r)
		}
	}
	return results
}

// beat renews the lease, and sees to it that nothing is waited for that does not come.
func (k *Collector) beat(ctx context.Context) {
	tick := time.NewTicker(k.terms.renewal)
	defer tick.Stop()
	var before sight
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		k.mu.Lock()
		parked := len(k.parked)
		k.mu.Unlock()
		answer, err := k.ask(ctx, scriptBeat, milliseconds(k.terms.lease), strconv.Itoa(parked))
		if err != nil {
			k.fail(ctx, err)
			return
		}
		if answer != nil {
			before = k.compare(before, int(answer[2].number()), int(answer[3].number()))
		}
	}
}

// sight is what a beat has found.
type sight struct {
	cursor string
	open   int
	unread bool // the engine has results that were not read
	lost   bool // the engine has nothing, and there are tasks without an outcome
}

// compare looks whether what the engine has, in results and in tasks, is what is known of it. What is not so for two beats,
// with nothing coming in between, is put right. An engine may have more results than were read and no new ones: its clock was
// set back, or another engine took its place whose clock is behind, so that new results have lower ids than those read before;
// then all are read again. Or it has neither tasks nor results: then the tasks that have no outcome are added again.
func (k *Collector) compare(before sight, results, tasks int) sight {
	k.mu.Lock()
	known := len(k.parked)
	for _, at := range k.given {
		known += len(at)
	}
	now := sight{cursor: k.cursor, open: len(k.open)}
	now.unread = results > known
	now.lost = results == 0 && tasks == 0 && len(k.open) > 0
	same := now == before
	if same && now.unread {
		k.cursor = "0"
	}
	var again []addition
	if same && now.lost {
		again = k.openLocked()
	}
	k.mu.Unlock()
	if len(again) > 0 {
		k.link.log.Warn("Redis lost tasks and results: adding the tasks without a result again", "job", k.cfg.Name)
		k.adds.put(again...)
	}
	return now
}

// openLocked are the tasks that have no outcome.
func (k *Collector) openLocked() []addition {
	again := make([]addition, 0, len(k.open))
	for n, payload := range k.open {
		again = append(again, addition{number: n, payload: payload})
	}
	return again
}
