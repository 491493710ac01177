package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// message is all that a member says at one time. Its order is that of ledger.lua.
type message struct {
	number   uint64 // counts the Ledger's messages
	member   string
	account  string
	lane     string
	anew     bool // the engine did not have the script
	knows    record
	knowsAll record
	recall   bool // the engine wants to know all that the member does
	outage   *outage

	corrections []limits.Correction
	renewed     []uint64
	settlements []limits.Settlement
	waiting     int
	asks        []limits.Ask
	test        time.Duration              // see limits.Asks
	guarded     [limits.NumDimensions]bool // by a configured limit
}

// outage is what a member granted by itself while the engine was gone, of a lane.
type outage struct {
	number  int
	owed    limits.Vector // the part that has not flowed in again,
	owedAll limits.Vector // and of that of all lanes, if they have a limit together
	spent   limits.Vector
	sent    []sentAlone // in the longest period of a configured limit: the amounts that these limits count
}

// sentAlone is an amount that was sent at an instant.
type sentAlone struct {
	at      time.Time
	guarded limits.Vector
}

// The fields of a record, as the engine has them.
const (
	fieldGeneration = iota
	fieldSpent
	fieldSlots
	fieldPause
	fieldBudget // and those after it: from requests to tokens per day
	fieldGuards = fieldBudget + int(limits.NumDimensions-limits.Requests)
	numFields   = fieldGuards + 1
)

var _ = [1]struct{}{}[numFields-11] // ledger.lua has as many

// record is what a member remembers of a lane, or of all together: the fields as it was told them.
type record [numFields]string

// version and epoch are the first numbers of their fields.
func (r *record) version() string { return leading(r[fieldSlots]) }
func (r *record) epoch() string   { return leading(r[fieldPause]) }

func leading(field string) string {
	if field == "" {
		return "0"
	}
	first, _, _ := strings.Cut(field, " ")
	return first
}

// fieldNames are the fields' names in the engine.
func fieldNames() [numFields]string {
	names := [numFields]string{"generation", "spent", "slots", "pause"}
	for i := fieldBudget; i < fieldGuards; i++ {
		names[i] = "b" + strconv.Itoa(i-fieldBudget+1)
	}
	names[fieldGuards] = "guards"
	return names
}

// args is the message as the script reads it.
func (m *message) args() []string {
	a := words{ledgerFormat, m.member, m.lane, m.account + ":news", m.account + ":wake:"}
	a.flag(m.anew)
	for _, r := range []*record{&m.knows, &m.knowsAll} {
		a.add(r[fieldGeneration], r[fieldSpent], r.version(), r.epoch(), r.guardsAt())
	}
	for _, r := range []*record{&m.knows, &m.knowsAll} {
		a.recall(r, m.recall)
	}
	a.outage(m)
	a.count(len(m.corrections))
	for i := range m.corrections {
		a.correction(&m.corrections[i])
	}
	a.count(len(m.renewed))
	for _, id := range m.renewed {
		a.id(id)
	}
	a.count(len(m.settlements))
	for i := range m.settlements {
		a.settlement(&m.settlements[i], m.counted(m.settlements[i].Guarded))
	}
	a.add(strconv.Itoa(m.waiting), numbersText(micros(m.test)))
	a.count(len(m.asks))
	for i := range m.asks {
		a.ask(&m.asks[i], m.counted(m.asks[i].Guarded))
	}
	return a
}

// counted leaves the amounts that a configured limit counts.
func (m *message) counted(v limits.Vector) limits.Vector {
	for d := range v {
		if !m.guarded[d] {
			v[d] = 0
		}
	}
	return v
}

// words are the script's arguments.
type words []string

func (w *words) add(s ...string) { *w = append(*w, s...) }
func (w *words) count(n int)     { w.add(strconv.Itoa(n)) }
func (w *words) id(id uint64)    { w.add(strconv.FormatUint(id, 10)) }

func (w *words) flag(b bool) { w.add(flag(b)) }

func (w *words) recall(r *record, recall bool) {
	if !recall || r[fieldGeneration] == "" {
		w.count(0)
		return
	}
	w.count(numFields)
	names := fieldNames()
	for i, text := range r {
		w.add(names[i], text)
	}
}

func (w *words) outage(m *message) {
	o := m.outage
	if o == nil {
		w.add("", "", "", "")
		w.count(0)
		return
	}
	w.add(strconv.Itoa(o.number), vectorText(&o.owed), vectorText(&o.owedAll), vectorText(&o.spent))
	now := time.Now()
	sent := make([]sentAlone, 0, len(o.sent))
	for _, s := range o.sent {
		if s.guarded = m.counted(s.guarded); s.guarded != (limits.Vector{}) {
			sent = append(sent, s)
		}
	}
	w.count(len(sent))
	for i := range sent {
		w.add(numbersText(micros(max(0, now.Sub(sent[i].at)))), vectorText(&sent[i].guarded))
	}
}

func (w *words) correction(c *limits.Correction) {
	w.flag(c.Account)
	w.count(int(c.Dimension))
	switch s := &c.Slots; c.Dimension {
	case limits.AnyDimension:
		w.add(numbersText(float64(c.Pause.Epoch), micros(c.Pause.Left), float64(c.Pause.Cause)))
	case limits.Concurrency:
		refused := 0.0
		if s.Refused {
			refused = 1
		}
		w.add(numbersText(float64(s.Version), s.Limit, float64(s.Bad), refused, micros(s.Hold), micros(s.Left)))
	default:
		w.add(numbersText(c.Mark, c.Lo, c.Hi, c.Rate, c.Cap, c.Start, c.Limit, c.Burst, micros(cmp.Or(c.LimitPeriod, c.Dimension.Window())),
			micros(c.Period), micros(c.Left)))
	}
}

// ask is a request that wants its cost, and the amounts that configured limits count for it where they differ.
func (w *words) ask(a *limits.Ask, guarded limits.Vector) {
	w.id(a.ID)
	text := vectorText(&a.Cost)
	for d, amount := range guarded {
		if amount != 0 && amount != a.Cost[d] {
			text += " | " + vectorText(&guarded)
			break
		}
	}
	w.add(text)
}

func (w *words) settlement(s *limits.Settlement, guarded limits.Vector) {
	w.id(s.ID)
	text := flag(s.Proven) + " " + flag(s.Open)
	if s.Refund != (limits.Vector{}) || guarded != (limits.Vector{}) {
		text += " " + vectorText(&s.Refund)
	}
	if guarded != (limits.Vector{}) {
		text += " " + numbersText(micros(s.Age)) + " " + vectorText(&guarded)
	}
	w.add(text)
}

// flag is a yes or no, as scripts read it.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// vectorText writes the amounts of a vector, from requests to tokens per day.
func vectorText(v *limits.Vector) string { return numbersText(v[limits.Requests:]...) }

// numbersText writes numbers so that reading them gives the same. The engine has no word for infinity.
func numbersText(numbers ...float64) string {
	b := make([]byte, 0, 16*len(numbers))
	for i, x := range numbers {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendFloat(b, max(-math.MaxFloat64, min(x, math.MaxFloat64)), 'g', -1, 64)
	}
	return string(b)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func fromMicros(us float64) time.Duration {
	if us >= math.MaxInt64/float64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(us * float64(time.Microsecond))
}

// send has the engine take in a message.
func (l *Ledger) send(ctx context.Context, ln *lane, m *message) (*answer, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	for {
		reply, err := l.eval(ctx, ln.keys, m)
		switch {
		case err != nil && caller.Err() != nil:
			return nil, caller.Err()
		case err != nil:
			l.lose(err)
			return nil, fmt.Errorf("shared limits: %w", err)
		case reply[0] == "restore" && !m.recall:
			m.recall = true
			continue
		}
		a, err := readAnswer(reply, m)
		if err != nil {
			l.lose(err)
		}
		return a, err
	}
}

// eval runs the script. It sends the text only to an engine that does not have it, as the message then says so.
func (l *Ledger) eval(ctx context.Context, keys []string, m *message) ([]string, error) {
	r, err := l.client.eval(ctx, &script{sha: l.script.sha, repeatable: true}, keys, m.args())
	if isRefusal(err, "NOSCRIPT") {
		m.anew = true
		r, err = l.client.eval(ctx, l.script, keys, m.args())
	}
	out := r.texts()
	if err == nil && len(out) == 0 {
		err = errors.New("empty response from Redis")
	}
	return out, err
}

// answer is a Reply with what only the Ledger needs.
type answer struct {
	limits.Reply
	lane, account record
	at            float64 // of the engine, in microseconds
	awake         string  // whose turn it is, if somebody's is
	contended     bool
	standing      standing
}

const answerHead = 13 // what stands before the records

// readAnswer reads what the script says to a message.
func readAnswer(s []string, m *message) (*answer, error) {
	if len(s) != answerHead+2*numFields || s[0] != "ok" {
		return nil, fmt.Errorf("the response of Redis has %d parts instead of %d", len(s), answerHead+2*numFields)
	}
	var head [answerHead]float64
	for i, text := range s[:answerHead] {
		switch i {
		case 0, 5, 6, 7, 9: // these are no numbers
			continue
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("the response of Redis: %w", err)
		}
		head[i] = x
	}
	a := &answer{at: head[1], awake: s[9], contended: head[10] == 1, standing: standing{int(head[11]), int(head[12])},
		lane: record(s[answerHead : answerHead+numFields]), account: record(s[answerHead+numFields:])}
	a.Granted, a.Wait, a.Bound = min(int(head[2]), len(m.asks)), fromMicros(head[3]), limits.Dimension(head[4])
	if a.Granted > 0 {
		_, before, _ := strings.Cut(s[7], " ") // the instant is no matter
		a.Before = readVector(before)
		a.Marks = marks(readVector(s[6]), s[5], m.asks[:a.Granted])
	}
	if len(m.asks) > 0 {
		a.Levels = a.lane.levels(head[1])
	}
	a.State = readState(&a.lane, head[1])
	a.State.Open = int(head[8])
	return a, nil
}

// marks adds up what the granted asks spent. Those of them that were held before spent nothing.
func marks(spent limits.Vector, held string, granted []limits.Ask) []limits.Vector {
	again := make(map[string]bool)
	for _, at := range strings.Fields(held) {
		again[at] = true
	}
	out := make([]limits.Vector, len(granted))
	for i := range granted {
		if len(again) == 0 || !again[strconv.Itoa(i+1)] {
			for d := limits.Requests; d < limits.NumDimensions; d++ {
				spent[d] += granted[i].Cost[d]
			}
		}
		out[i] = spent
	}
	return out
}

// readState reads the slots and the pause of a record at an instant of the engine's.
func readState(r *record, now float64) limits.LaneState {
	slots, pause := readNumbers(r[fieldSlots]), readNumbers(r[fieldPause])
	n := limits.LaneState{
		Slots: limits.SlotLimit{Version: uint64(slots[0]), Limit: slots[1], Bad: int(slots[2]), Refused: slots[3] == 1,
			Hold: fromMicros(slots[4]), Left: max(0, fromMicros(slots[5]-now))},
		Pause: limits.Pause{Epoch: uint64(pause[0]), Probing: pause[1] == 1, Ramp: int(pause[2]), Cause: limits.Kind(pause[3]),
			Left: max(0, fromMicros(pause[4]-now))},
	}
	if n.Pause.Probing {
		n.Pause.Age = fromMicros(now - pause[5])
	}
	return n
}

// readNumbers reads up to six numbers. A number that is missing or not finite is 0.
func readNumbers(text string) (out [limits.NumDimensions - limits.Requests]float64) {
	for i, part := range strings.Fields(text) {
		if n, err := strconv.ParseFloat(part, 64); i < len(out) && err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
			out[i] = n
		}
	}
	return out
}

func readVector(text string) (v limits.Vector) {
	numbers := readNumbers(text)
	copy(v[limits.Requests:], numbers[:])
	return v
}
