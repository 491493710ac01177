package cluster

import (
	"context"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// Exchange says a batch as it is. It returns the reply, the member that was woken, and when that was by the engine.
func (l *Ledger) Exchange(ctx context.Context, b *gate.Batch) (r limits.Reply, woken string, at time.Time, err error) {
	l.mu.Lock()
	ln := l.lanes[b.Lane]
	if ln == nil { // nobody tends it: what is said here is all that is said
		ln = newLane(l.account, b.Lane)
		l.lanes[b.Lane] = ln
		l.patience = 20 * time.Second
	}
	l.mu.Unlock()
	l.mu.Lock()
	l.sent++
	m := &message{number: l.sent, member: l.member, account: l.account, lane: b.Lane, knows: ln.memory.record, knowsAll: l.memory.record,
		corrections: b.Corrections, settlements: b.Settlements, renewed: b.Renewed, waiting: b.Waiting, asks: b.Asks, test: b.Test}
	for d := range m.guarded {
		m.guarded[d] = true
	}
	l.mu.Unlock()
	a, err := l.send(ctx, ln, m)
	if err != nil {
		return limits.Reply{}, "", time.Time{}, err
	}
	l.mu.Lock()
	ln.memory.remember(a.lane, time.Now())
	l.memory.remember(a.account, time.Now())
	l.mu.Unlock()
	return a.Reply, a.awake, time.UnixMicro(int64(a.at)), nil
}

// Sent is how many messages the Ledger has begun to send.
func (l *Ledger) Sent() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// Dial connects as Open does.
func Dial(ctx context.Context, url string) error {
	at, err := parseURL(url)
	if err != nil {
		return err
	}
	o, err := at.option()
	if err != nil {
		return err
	}
	_, err = dial(ctx, o)
	return err
}

// Reenter tells the engine all, as a Ledger does that lost it.
func (l *Ledger) Reenter() error { return l.reenter() }

// Wait has the Ledger wait for so long for an answer: machines that test have other things to do.
func (l *Ledger) Wait(patience time.Duration) { l.patience = patience }

// Member names the process among the members.
func (c *Cluster) Member() string { return c.member }

// Engine returns what Redis said of itself.
func (c *Cluster) Engine() Engine { return c.engine }

// Member names the Ledger among the members.
func (l *Ledger) Member() string { return l.member }

// Account begins the keys of the Ledger.
func (l *Ledger) Account() string { return l.account }

// Speak has the Ledger speak as another member.
func (l *Ledger) Speak(member string) { l.member = member }

// Near reports whether nobody beside this host sees what is sent to a URL, and what it is shown as.
func Near(url string) (shown string, near bool, err error) {
	e, err := parseURL(url)
	if err != nil {
		return "", false, err
	}
	return e.String(), e.near(), nil
}

// Key is one of the keys of an account.
func Key(account, part string) string { return hashTag(account) + ":" + part }

// SetTerms shortens what is waited for before someone is taken for dead.
func SetTerms(c *Cluster, lease, renewal time.Duration) {
	c.terms = terms{lease: lease, renewal: renewal}
}

// KeysOf are a job's keys.
func KeysOf(name string) []string { return keysOf(name) }

// Abandon ends a collector without a word to the engine, as a death does.
func Abandon(k *Collector) {
	k.end(ErrClosed)
	k.stop()
	k.run.Wait()
}

// Ended reports whether a Collector was closed, or has lost its job.
func Ended(k *Collector) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err != nil
}

// Rebuilt returns how often the Collector added its tasks again.
func Rebuilt(k *Collector) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.era
}

// WakeWaiting ends all waits in Next, as a job of another version does.
func WakeWaiting(w *Worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, place := range w.waiters {
		close(place)
	}
	w.waiters = nil
}

// Members is how many members the Ledger saw last.
func (l *Ledger) Members() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.members
}
