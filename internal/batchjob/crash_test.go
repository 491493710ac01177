package batchjob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/suite"
)

// errDead is what all calls of a process say that is dead.
var errDead = errors.New("the process is dead")

// process is one that dies at one of its calls, before or after its effect. Then nothing that it does has any.
type process struct {
	*double
	mu    sync.Mutex
	life  int // calls left
	after bool
	die   context.CancelFunc
}

// world is what outlives processes.
type world struct {
	api  *double
	dir  string
	done map[string]int // results in the journal
}

// call makes a call, unless the process is dead.
func (p *process) call(fn func() error) error {
	p.mu.Lock()
	p.life--
	life := p.life
	p.mu.Unlock()
	if life < 0 || life == 0 && !p.after {
		p.die()
		return errDead
	}
	err := fn()
	if life == 0 {
		p.die()
		return errDead
	}
	return err
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life <= 0
}

func (p *process) Upload(ctx context.Context, part *batchjob.File) (id string, err error) {
	err = p.call(func() (err error) { id, err = p.double.Upload(ctx, part); return err })
	return id, err
}

func (p *process) Create(ctx context.Context, part *batchjob.File, file string) (b batchjob.Batch, err error) {
	err = p.call(func() (err error) { b, err = p.double.Create(ctx, part, file); return err })
	return b, err
}

func (p *process) Find(ctx context.Context, part *batchjob.File, since time.Time) (bs []batchjob.Batch, err error) {
	err = p.call(func() (err error) { bs, err = p.double.Find(ctx, part, since); return err })
	return bs, err
}

func (p *process) Get(ctx context.Context, id string) (b batchjob.Batch, err error) {
	err = p.call(func() (err error) { b, err = p.double.Get(ctx, id); return err })
	return b, err
}

func (p *process) Fetch(ctx context.Context, result string, w io.Writer) error {
	return p.call(func() error { return p.double.Fetch(ctx, result, w) })
}

// live is a process's life: it takes up what is there, adds what is missing, and records what comes.
func (w *world) live(life int, after bool, members int) (finished bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := &process{double: w.api, life: life, after: after, die: cancel}
	l := &lander{done: w.done, changed: make(chan struct{}, 1)}
	cfg := batchjob.Config{APIs: map[string]batchjob.API{"acme": p}, Dir: w.dir, Changed: l.changed}
	cfg.SaveBy(p.call)
	l.Table, err = batchjob.Open(cfg)
	if err != nil {
		return false, err
	}
	defer l.Close()
	err = l.run(ctx, members)
	if p.dead() {
		return false, nil
	}
	return err == nil, err
}

// draw makes a provider that fails as it likes, for a while.
func draw(rt *rapid.T) *double {
	d := &double{runs: map[string]int{}, takes: 20 * time.Minute}
	d.nameless = rapid.Bool().Draw(rt, "nameless")
	d.bounds.Requests = rapid.IntRange(2, 6).Draw(rt, "requests of a batch")
	d.lag = time.Duration(rapid.IntRange(0, 15).Draw(rt, "lag")) * time.Second
	kinds := []fault{none, none, none, unsent, lostBefore, lostAfter, late}
	faults := rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 60).Draw(rt, "faults")
	d.fault = func(string) fault {
		if len(faults) == 0 {
			return none
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
	d.cut = rapid.IntRange(0, 3).Draw(rt, "cuts")
	problems := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "no_room", "too_large", "invalid", "broken", "expires"}), 0, 10).
		Draw(rt, "problems")
	broken := 0
	d.refuse = func(n int, p *batchjob.File, b *doubled) *batchjob.Problem {
		if n >= len(problems) || problems[n] == "" {
			return nil
		}
		switch kind := problems[n]; kind {
		case "expires":
			b.expires = true
			return nil
		case "invalid":
			return &batchjob.Problem{Kind: batchjob.Invalid, Message: "bad lines", Lines: map[int]string{1: "it is wrong"}}
		case "broken":
			if broken++; broken > 2 {
				return nil
			}
			return &batchjob.Problem{Kind: batchjob.Broken}
		default:
			return &batchjob.Problem{Kind: batchjob.ProblemKind(kind), Tokens: 30 * (n % 2)}
		}
	}
	return d
}

func TestMain(m *testing.M) {
	suite.InMemory()
	m.Run()
}

func TestNoRequestIsRunTwiceOrLostWhereverProcessesDie(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := &world{api: draw(rt), dir: filepath.Join(dir, strconv.Itoa(run)), done: map[string]int{}}
		members := rapid.IntRange(1, 20).Draw(rt, "members")
		lives := rapid.SliceOfN(rapid.IntRange(1, 40), 0, 12).Draw(rt, "lives")
		after := rapid.SliceOfN(rapid.Bool(), len(lives), len(lives)).Draw(rt, "after the effect")
		foreign := rapid.SliceOfN(rapid.IntRange(1, 6), 0, 4).Draw(rt, "batches of others")
		var err error
		synctest.Test(t, func(t *testing.T) { err = w.history(lives, after, foreign, members) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// history has processes live one after the other, the last one as long as it needs.
func (w *world) history(lives []int, after []bool, foreign []int, members int) error {
	finished := false
	for i := 0; !finished; i++ {
		if i < len(foreign) { // while no process is there, somebody else uses the same key
			w.api.foreign(foreign[i])
		}
		life, late := 1<<30, false
		if i < len(lives) {
			life, late = lives[i], after[i]
		}
		var err error
		if finished, err = w.live(life, late, members); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	w.api.runAll()
	for i := range members {
		id := fmt.Sprintf("m%d", i)
		status, runs := w.done[id], w.api.runs[id]
		if !(status == 200 && runs == 1 || status == 400 && runs == 0) {
			return fmt.Errorf("member %s has status %d and was run %d times", id, status, runs)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, "*")); len(left) != 1 {
		return fmt.Errorf("files are left: %q", left)
	}
	tags, err := batchjob.Read(w.dir)
	if slices.ContainsFunc(tags, func(r batchjob.Row) bool { return r.Open() }) {
		return fmt.Errorf("parts are left: %+v", tags)
	}
	return err
}
