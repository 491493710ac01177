package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// TestWhateverMeetsNothingIsHeld runs batches under a budget in which everything that makes calls wait or spares them may
// meet: several upstreams, warm-up, a cache, equal lines, retries, pauses, checks that panic, and stops of all kinds. Each run
// ends, uses no more than its budget, and leaves nothing of it held.
func TestWhateverMeetsNothingIsHeld(t *testing.T) {
	eachSeed(t, suite.Size(12, 100), meet)
}

// meeting is one such run.
type meeting struct {
	luck *rand.Rand
	n    int
	pays *payer
	farm *farm
	cfg  batch.Config
}

func meet(t *testing.T, luck *rand.Rand) error {
	m := &meeting{luck: luck, n: 1 + luck.IntN(80), farm: newFarm(t)}
	m.pays = &payer{luck: rand.New(rand.NewPCG(luck.Uint64(), 1)), faults: luck.Float64() * 0.7, most: time.Duration(1 + luck.IntN(3000)*int(time.Millisecond))}
	f := newFiles(t, m.lines())
	m.cfg = f.config(t, m.pays)
	if err := m.send(); err != nil {
		return err
	}
	m.check()
	cfg := &m.cfg
	cfg.Feedback = m.perhaps()
	cfg.Workers = luck.IntN(40)
	cfg.Budget = batch.Budget{Attempts: 4, Tokens: 1 + luck.IntN(m.n*2500)}
	if m.perhaps() {
		cfg.Budget.Cost = luck.Float64() * float64(m.n) * 0.01
	}
	if m.perhaps() {
		cfg.Cache = filepath.Join(t.TempDir(), "cache")
	}
	if luck.IntN(3) == 0 {
		in, err := os.Open(f.in)
		if err != nil {
			return err
		}
		defer in.Close()
		cfg.Input, cfg.Stdin = "-", in
	}
	return m.run()
}

func (m *meeting) perhaps() bool { return m.luck.IntN(2) == 0 }

// lines are some of few subjects, and equal ones among them.
func (m *meeting) lines() string {
	subjects := 1 + m.luck.IntN(6)
	var text strings.Builder
	for i := range m.n {
		question := m.luck.IntN(m.n)
		fmt.Fprintf(&text, `{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","max_tokens":%d,"messages":[`+
			`{"role":"system","content":%q},{"role":"user","content":"%d?"}]}}`+"\n",
			i, 1+question%400, fmt.Sprint("s", question%subjects)+strings.Repeat(".", 4500), question)
	}
	return text.String()
}

// send says where calls go: to one account or several upstreams.
func (m *meeting) send() error {
	for i := range 1 + m.luck.IntN(3) {
		m.farm.add(fmt.Sprint("u", i), m.pays, func(up *provider.Upstream) {
			up.Scheduler = m.farm.scheduler(sluice.Config{Limits: sluice.Limits{Concurrency: 1 + m.luck.IntN(10)}, Attempts: 4})
			up.Price = func(string) *provider.Price { return provider.FlatPrice(priceIn, priceOut) }
		})
	}
	m.farm.cfg.Attempts = 4
	m.cfg.Price = prices
	if m.perhaps() {
		m.cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) { return m.first(), nil }
		return nil
	}
	u, err := provider.NewUpstreams(m.farm.cfg)
	m.cfg.Scheduler, m.cfg.Upstreams, m.cfg.Transport = nil, u, m.farm
	return err
}

func (m *meeting) first() *sluice.Scheduler { return m.farm.cfg.Upstreams[0].Scheduler }

// check refuses some answers, and panics at one.
func (m *meeting) check() {
	odd := fmt.Sprint(m.luck.IntN(30))
	m.cfg.Check = func(id string, _ provider.Endpoint, body []byte) error {
		if id == odd {
			panic("odd")
		}
		if strings.Contains(string(body), "WRONG") {
			return errors.New("wrong")
		}
		return nil
	}
}

func (m *meeting) run() error {
	b, err := batch.Open(m.cfg)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stops := []func(){func() {}, func() {}, b.Drain, func() { b.Stop(errors.New("enough")) }, cancel}
	stop, at := stops[m.luck.IntN(len(stops))], time.Duration(m.luck.IntN(10_000))*time.Millisecond
	defer time.AfterFunc(at, stop).Stop()
	pause := time.Duration(m.luck.IntN(8000)) * time.Millisecond
	defer time.AfterFunc(pause, func() { m.first().Pause() }).Stop()
	defer time.AfterFunc(pause+time.Minute, func() { m.first().Resume() }).Stop()

	rep, err := b.Run(ctx)
	if now := b.Spending(); now.Held != (budget.Amount{}) || now.Open+now.Waiting != 0 {
		return fmt.Errorf("the spending caps are %+v after %v", now, err)
	}
	if err == nil && rep.Done+rep.Failed != m.n {
		return fmt.Errorf("%d of %d items, and no error", rep.Done+rep.Failed, m.n)
	}
	return m.left()
}

// left looks at what is in use and what was used after the run.
func (m *meeting) left() error {
	for _, up := range m.farm.cfg.Upstreams {
		for _, lane := range up.Scheduler.Snapshot().Lanes {
			if lane.InFlight != 0 || lane.Waiting != 0 {
				return fmt.Errorf("%s: %d in flight and %d waiting", up.Name, lane.InFlight, lane.Waiting)
			}
		}
	}
	if used, most := m.pays.in+m.pays.out, m.cfg.Budget.Tokens; used > most {
		return fmt.Errorf("%d tokens were used of %d", used, most)
	}
	if most := m.cfg.Budget.Cost; most > 0 && m.pays.cost() > most*(1+1e-9) {
		return fmt.Errorf("$%v were spent of $%v", m.pays.cost(), most)
	}
	return nil
}
