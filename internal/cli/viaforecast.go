package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// dryVia is what a run would hand over to Batch APIs, as --json prints it.
type dryVia struct {
	Way      string       `json:"way"`
	Cost     *costRange   `json:"cost_usd"` // by the Batch API; null: not all prices are known
	Accounts []dryBatches `json:"accounts"`
	Batches  int          `json:"pending_batches"`  // that earlier runs began
	Requests int          `json:"pending_requests"` // in them, which the accounts have as well
	Auto     *dryAuto     `json:"auto,omitempty"`   // null: there is no deadline to weigh
}

// dryAuto is what --via auto does by a deadline.
type dryAuto struct {
	Live  int      `json:"live_at_once"`
	Later int      `json:"by_batch"`
	WaitS *float64 `json:"live_after_s"` // what has no answer then is called live; null: batches are let run beyond the deadline
	TimeS float64  `json:"live_time_s"`  // of all requests, with a margin
}

// dryBatches is what one account would be handed.
type dryBatches struct {
	Provider string  `json:"provider"`
	Batches  int     `json:"batches"`
	Requests int     `json:"requests"`
	Bytes    int64   `json:"bytes"`
	Tokens   int64   `json:"input_tokens"`
	Price    float64 `json:"price"` // of a call, where a live one's is 1
	WindowS  float64 `json:"window_s,omitempty"`
	BoundBy  string  `json:"bound_by,omitempty"` // enqueued_tokens, batches_per_hour or pending_requests
	Turns    int     `json:"turns,omitempty"`    // in which they go there for that, one after the other
}

// viaOutlook counts the batches that requests would become.
type viaOutlook struct {
	flags    *viaFlags
	known    *provider.Registry
	accounts map[string]*dryBatches
	rows     map[string]provider.Batches
	open     map[batchName]*openBatch
}

// batchName is what requests have in common that can be in one batch.
type batchName struct{ provider, endpoint, model string }

// openBatch is a batch that is not full.
type openBatch struct {
	requests, tokens int
	bytes            int64
}

func newViaOutlook(f *viaFlags, known *provider.Registry) *viaOutlook {
	return &viaOutlook{
		flags: f, known: known, accounts: make(map[string]*dryBatches), rows: make(map[string]provider.Batches),
		open: make(map[batchName]*openBatch),
	}
}

// wrapping is about what stands around the body of a request in a batch: its id, method and path.
const wrapping = 110

// add adds a request.
func (l *viaOutlook) add(r batch.Request) {
	if l.flags.way == batch.ViaLive {
		return
	}
	account := l.accounts[r.Provider]
	if account == nil {
		p, _ := l.known.Lookup(r.Provider) // the request was recognised as its
		if p.Batches.API == "" && l.flags.way == batch.ViaAuto {
			return // called live
		}
		account = &dryBatches{Provider: p.Name, Price: p.Batches.Price, WindowS: p.Batches.Window.Seconds()}
		l.accounts[r.Provider], l.rows[r.Provider] = account, l.flags.bound(p.Batches)
	}
	row := l.rows[r.Provider]
	name := batchName{provider: r.Provider, endpoint: r.Endpoint.String()}
	if row.OneModel {
		name.model = r.Model
	}
	size, tokens := int64(r.Size+wrapping), int(r.Price.Cost.Input)
	b := l.open[name]
	if b == nil || b.full(row, l.flags.tokens, size, tokens) {
		b = &openBatch{}
		l.open[name] = b
		account.Batches++
	}
	b.requests, b.tokens, b.bytes = b.requests+1, b.tokens+tokens, b.bytes+size
	account.Requests, account.Bytes, account.Tokens = account.Requests+1, account.Bytes+size, account.Tokens+int64(tokens)
}

// bound is a provider's row with the bounds of a batch that the flags set, where those are lower.
func (f *viaFlags) bound(row provider.Batches) provider.Batches {
	most, _ := bytesOf("batch-bytes", f.bytes) // it was checked
	row.Requests, row.Bytes = parts.Least(f.requests, row.Requests), parts.Least(most, row.Bytes)
	return row
}

// full reports whether a request would be too much for the batch.
func (b *openBatch) full(row provider.Batches, room int, size int64, tokens int) bool {
	return row.Requests > 0 && b.requests+1 > row.Requests || row.Bytes > 0 && b.bytes+size > row.Bytes || room > 0 && b.tokens+tokens > room
}

// sum is what all requests would become.
func (l *viaOutlook) sum() *dryVia {
	v := &dryVia{Way: l.flags.way.String(), Accounts: []dryBatches{}}
	for _, name := range slices.Sorted(maps.Keys(l.accounts)) {
		b := *l.accounts[name]
		b.bind(l.flags, l.rows[name])
		v.Accounts = append(v.Accounts, b)
	}
	return v
}

// bind says what holds batches back: what makes most turns.
func (b *dryBatches) bind(f *viaFlags, row provider.Batches) {
	for _, bound := range []struct {
		name       string
		need, most int64
	}{
		{"enqueued_tokens", b.Tokens, int64(f.tokens)}, {"pending_requests", int64(b.Requests), int64(row.Pending)},
		{"batches_per_hour", int64(b.Batches), int64(row.PerHour)},
	} {
		if bound.most == 0 {
			continue
		}
		if turns := int((bound.need + bound.most - 1) / bound.most); turns > max(1, b.Turns) {
			b.BoundBy, b.Turns = bound.name, turns
		}
	}
}

// price adds what the lanes cost by the Batch APIs.
func (v *dryVia) price(lanes []dryLane) {
	all := &costRange{Most: new(0.0)}
	for _, lane := range lanes {
		i := slices.IndexFunc(v.Accounts, func(b dryBatches) bool { return b.Provider == lane.Provider })
		factor := 1.0 // of what is called live
		if i >= 0 {
			factor = v.Accounts[i].Price
		}
		if lane.Cost == nil || factor == 0 {
			return
		}
		all.Least = prose.RoundDollars(all.Least + lane.Cost.Least*factor)
		switch {
		case lane.Cost.Most == nil:
			all.Most = nil
		case all.Most != nil:
			*all.Most = prose.RoundDollars(*all.Most + *lane.Cost.Most*factor)
		}
	}
	v.Cost = all
}

// goTogether adds what would go through Batch APIs.
func (d *dryRun) goTogether(o *runOptions, seen *viaOutlook, p batch.Preview) error {
	if o.via.way == batch.ViaLive {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(seen.rows)) {
		if seen.rows[name].API == "" {
			return noBatchAPI(seen.known, name)
		}
	}
	d.Via = seen.sum()
	d.Via.price(d.Models)
	d.Via.Batches, d.Via.Requests = p.PendingParts, p.PendingLines
	if len(d.Via.Accounts) > 0 {
		d.unknown("when batches end: providers promise an end and no time before it")
	}
	return nil
}

// weigh adds what --via auto does by its deadline.
func (d *dryRun) weigh(o *runOptions, a *accounts, deadline time.Time) {
	if o.via.way != batch.ViaAuto || deadline.IsZero() || len(d.Via.Accounts) == 0 {
		return
	}
	models, requests := make(map[string]int), 0
	for _, l := range d.Models {
		models[l.Model] += l.Items
		requests += l.Items
		if l.TimeS == nil {
			why := fmt.Sprintf("no limit of %s at %s is known, and auto weighs live calls against --deadline: tell it by --rpm, --tier or --limits", l.Model, l.Provider)
			d.Assumed = append(d.Assumed, plan.Assumption{What: sluice.Requests.String(), Value: number(presumedRPM), Why: why})
		}
	}
	live := &liveTime{accounts: a, models: func() map[string]int { return models }, maxTokens: o.maxTokens}
	w := batch.Weigh(time.Until(deadline), requests, int(d.InputTokens), live.of)
	d.Via.Auto = &dryAuto{Live: w.Live, Later: requests - w.Live, TimeS: w.Time.Seconds()}
	if w.Wait > 0 {
		d.Via.Auto.WaitS = new(w.Wait.Seconds())
	}
}

// words say what it does.
func (a *dryAuto) words() string {
	took := shortTime(&a.TimeS)
	switch {
	case a.Later == 0:
		return fmt.Sprintf("all is called live at once, for about %s: batches would have no time to come back before the deadline", took)
	case a.Live > 0:
		return fmt.Sprintf("%s go live at once, and %s by batch, which may come after the deadline: live calls of all take about %s",
			group(a.Live), group(a.Later), took)
	case a.WaitS == nil:
		return "all goes by batch, which may come after the deadline: live calls can do none before it"
	}
	return fmt.Sprintf("all goes by batch; what has no answer in %s is called live: all of it would take about %s", shortTime(a.WaitS), took)
}

// print writes it for people, as rows below those of live calls.
func (v *dryVia) print(s *streams) {
	if v == nil || len(v.Accounts) == 0 {
		return
	}
	s.row("by batch", "%s", v.costWords())
	for _, b := range v.Accounts {
		text := fmt.Sprintf("%s at %s: %s, about %s", countBatches(b.Batches), b.Provider, count(b.Requests, "request"), megabytes(b.Bytes))
		if b.WindowS > 0 {
			text += ", within " + hours(b.WindowS)
		}
		if b.BoundBy != "" {
			text += fmt.Sprintf("; %s turns for %s", group(b.Turns), strings.ReplaceAll(b.BoundBy, "_", " "))
		}
		s.row("batches", "%s", text)
	}
	if v.Batches > 0 {
		s.row("pending", "%s in %s of earlier runs, which are taken up and not handed over again: what stands above counts them, too",
			count(v.Requests, "request"), countBatches(v.Batches))
	}
	if v.Auto != nil {
		s.row("auto", "%s", v.Auto.words())
	}
}

// costWords say what it costs; of an unknown price, which part of it.
func (v *dryVia) costWords() string {
	price := v.Accounts[0].Price
	alike := !slices.ContainsFunc(v.Accounts, func(b dryBatches) bool { return b.Price != price })
	if v.Cost == nil && alike && price > 0 {
		return fmt.Sprintf("not known, but for %s of the live price", prose.Percent(price))
	}
	return v.Cost.words()
}

// countBatches counts them: the plural is not that of most words.
func countBatches(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return group(n) + " batches"
}

// hours writes the time in which a batch ends as providers state it.
func hours(seconds float64) string {
	if d := time.Duration(seconds * float64(time.Second)); d%time.Hour != 0 {
		return span(d)
	}
	return number(seconds/3600) + " h"
}

// megabytes writes a size as providers state theirs.
func megabytes(n int64) string {
	const mega = 1e6
	if n < mega/10 {
		return fmt.Sprintf("%s kB", number(float64((n+999)/1000)))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/mega)
}

// batchFigures are what a plan says of the provider's Batch API.
type batchFigures struct {
	Price    float64  `json:"price"` // of a call, where a live one's is 1
	Cost     *float64 `json:"cost_usd,omitempty"`
	CostEach *float64 `json:"cost_per_request_usd,omitempty"`
	Batches  int      `json:"batches,omitempty"` // for all requests
	Requests int      `json:"requests_per_batch,omitempty"`
	WindowS  float64  `json:"window_s,omitempty"`
	Source   string   `json:"source,omitempty"`
}

// bytesPerToken is how long the text of a token is, about: providers estimate tokens by the same number.
const bytesPerToken = 4

// newBatchFigures plans with a provider's Batch API; nil where it has none.
func newBatchFigures(row provider.Batches, p *plan.Plan) *batchFigures {
	if row.API == "" || row.Price == 0 {
		return nil
	}
	b := &batchFigures{Price: row.Price, Requests: row.Requests, WindowS: row.Window.Seconds(), Source: row.Source}
	if p.CostPerRequest != nil {
		b.CostEach = new(prose.RoundDollars(*p.CostPerRequest * row.Price))
	}
	if p.Cost != nil {
		b.Cost = new(prose.RoundDollars(*p.Cost * row.Price))
	}
	if n := p.Workload.Requests; n > 0 {
		bytes := float64(n) * (p.InputTokens*bytesPerToken + wrapping)
		b.Batches = max(1, batchesOf(float64(n), float64(row.Requests)), batchesOf(bytes, float64(row.Bytes)))
	}
	return b
}

// batchesOf is how many batches hold so much, with a bound for each; 0 is no bound.
func batchesOf(all, most float64) int {
	if most == 0 {
		return 0
	}
	n := int(all / most)
	if float64(n)*most < all {
		n++
	}
	return n
}

// words say what calls cost by the Batch API.
func (b *batchFigures) words() (value, text string) {
	if b == nil {
		return "", ""
	}
	text = fmt.Sprintf("of the live price: sluice run --via batch-api; each ends within %s", hours(b.WindowS))
	if b.WindowS == 0 {
		text = "of the live price: sluice run --via batch-api"
	}
	text = prose.Percent(b.Price) + " " + text
	if b.Batches > 0 {
		text = countBatches(b.Batches) + ", " + text
	}
	if cost := cmp.Or(b.Cost, b.CostEach); cost != nil {
		return dollars(*cost), text
	}
	return prose.Percent(b.Price), text
}
