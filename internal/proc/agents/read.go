package agents

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// End is how a command ended, and what it left to read. Stdout and Stderr may lack their middle, in whose place a line says
// so.
type End struct {
	ExitCode int
	Signal   string // that killed it; "": it ended by itself
	TimedOut bool   // it was ended because its time was over
	Stdout   []byte
	Stderr   []byte
	Records  []Record // what it wrote for its caller: result files, and what lies in .failed
}

// Record is a file that a command wrote of its own end.
type Record struct {
	Name string // its path
	Body []byte
}

// Meaning is what the end of a command means.
type Meaning struct {
	Kind      sluice.Kind
	Wait      time.Duration    // how long it is asked to wait; 0 when nobody says
	Until     time.Time        // when a usage window resets, in the zone that it names; zero when nobody says
	Dimension limits.Dimension // the limit that was met; AnyDimension when nobody says
	Text      string           // what went wrong in the CLI's own words, without keys; "" for OK
	Source    string           // where that was read: "stdout", "stderr", "exit code 41", a record's name; "" for OK

	Usage    sluice.Usage // of all calls that the command made, where it says so
	HasUsage bool
	Cost     float64 // of all of them in US dollars, where it says so
	HasCost  bool
	Windows  []WindowUse // what it says of the account's windows
}

// WindowUse is what an output says of one of an account's windows.
type WindowUse struct {
	Name    string    `json:"name"`           // "5-hour", "weekly"
	Used    float64   `json:"used,omitempty"` // a share of one, by the CLI's own figures
	HasUsed bool      `json:"has_used,omitempty"`
	Resets  time.Time `json:"resets,omitzero"`
}

// Read says what the end of a command means. Structured evidence comes before words, and words count only where a program states its
// own error: no answer and no report becomes an error by what it talks about.
//
//  1. what JSON on standard output and in records says in fields made for it
//  2. a notice of the CLI: the whole of its output or the last paragraph
//  3. of a command that failed: the CLI's own exit codes, then the error that ends standard error, a record or, of an unknown command,
//     standard output
//
// A failure of which none of them says more is a CommandFailed. So is an exit code of 0 behind the output of a known CLI that is
// not whole. Words are classified by provider.ClassifyText.
func (c *CLI) Read(e End, now time.Time) Meaning {
	r := reading{cli: c.facts(), end: &e, now: now}
	e.Stdout, e.Stderr = plain(e.Stdout), plain(e.Stderr)
	r.out = finding{cli: r.cli, now: now}
	r.out.events(e.Stdout)
	if r.cli.text != nil && !r.out.spoke {
		r.cli.text(&r.out, e.Stdout)
	}
	r.lacks = r.unfinished()
	m := r.meaning()
	said := &r.out.said
	m.Usage, m.HasUsage, m.Cost, m.HasCost = said.Usage, said.HasUsage, said.Cost, said.HasCost
	m.Windows = r.windows(&m)
	return m
}

// Reply returns the answer in a standard output: that of a result where there are events, else all of it.
func (c *CLI) Reply(stdout []byte) provider.Reply {
	out := plain(stdout)
	f := finding{cli: c.facts()}
	if f.events(out); f.spoke {
		return f.reply
	}
	return provider.Reply{Text: string(bytes.TrimSpace(out))}
}

// reading is the work of Read.
type reading struct {
	cli   *CLI
	end   *End
	now   time.Time
	out   finding // of standard output
	lacks string  // what is missing of an output that is not whole
}

// unfinished says what is missing of a known CLI's output; "" where nothing is, or where the command says in a record how it ended.
func (r *reading) unfinished() string {
	out := bytes.TrimSpace(r.end.Stdout)
	switch {
	case r.cli.name == "" || len(r.end.Records) > 0:
	case len(out) == 0 || string(out) == "{}":
		return r.cli.name + " wrote no answer"
	case r.out.spoke && r.out.state != endedWell && r.out.fault.raw == nil:
		return "the output ends before its result"
	case cutOff(out):
		return "the JSON of the output is cut off"
	}
	return ""
}

// failed reports whether the command failed, by its end or because its output is not whole.
func (r *reading) failed() bool { return r.end.ExitCode != 0 || r.end.Signal != "" || r.lacks != "" }

// meaning weighs the evidence in its order.
func (r *reading) meaning() Meaning {
	if r.end.TimedOut {
		return Meaning{Kind: sluice.Timeout, Text: "the command did not end in its time", Source: "timeout"}
	}
	m, ok := r.structured()
	if ok || !r.failed() && m.Kind != sluice.OK {
		return m
	}
	out, source := r.alone()
	bound, notice := r.cli.ending(r.cli.bounds, out), ""
	if r.end.ExitCode == 0 && r.end.Signal == "" {
		notice = r.cli.ending(r.cli.notices, out)
	}
	switch v := r.out.verdict(0, notice); {
	case v.Kind != sluice.OK:
		return r.of(v, source)
	case bound+notice != "":
		return r.broken(bound+notice, source)
	case !r.failed():
		return Meaning{}
	case r.end.Signal != "" || r.end.ExitCode == 126 || r.end.ExitCode == 127:
		return r.byItself(m) // the system ended it, or never started it
	}
	if n, ok := r.words(); ok {
		return n
	}
	return r.byItself(m)
}

// alone returns what a command wrote that wrote no event: its standard output, or its standard error if that is all.
func (r *reading) alone() (out []byte, source string) {
	switch {
	case r.out.spoke:
		return nil, ""
	case strings.Join(lines(r.end.Stdout), "") != "":
		return r.end.Stdout, "stdout"
	}
	return r.end.Stderr, "stderr"
}

// structured reads fields that are made to say how the command ended. ok says that they name a kind. Otherwise a Kind other
// than OK is that of a failure for reasons of its own.
func (r *reading) structured() (m Meaning, ok bool) {
	if m, ok = r.found(&r.out, "stdout"); ok {
		return m, true
	}
	for _, record := range r.end.Records {
		f := finding{cli: r.cli, now: r.now}
		f.record(record.Body)
		r.out.adopt(&f)
		n, ok := r.found(&f, record.Name)
		if ok {
			return n, true
		}
		if m.Kind == sluice.OK {
			m = n
		}
	}
	return m, false
}

// found classifies what events say.
func (r *reading) found(f *finding, source string) (m Meaning, ok bool) {
	x := &f.fault
	certain := f.state == endedBadly && (x.certain || r.failed())
	if certain || f.state == endedBadly && x.raw != nil {
		for _, text := range []string{string(x.raw), x.text} {
			if text == "" {
				continue
			}
			if v := f.classify(x.status, text); v.Kind != sluice.OK {
				which := x.kind == sluice.RateLimit && (v.Kind.Throttle() || v.Kind == sluice.QuotaExhausted) // words say which limit it is
				if x.kind != sluice.OK && !which {
					v.Kind = x.kind
				}
				return r.refused(f, r.of(v, source)), true
			}
		}
		if x.kind != sluice.OK {
			return r.refused(f, Meaning{Kind: x.kind, Text: clip(cmp.Or(x.text, x.kind.String())), Source: source}), true
		}
	}
	switch {
	case f.rejected.HasUsed && (certain || f.state == unsaid):
		text := fmt.Sprintf("the %s window is used up", cmp.Or(f.rejected.Name, "usage"))
		return Meaning{Kind: sluice.UsageWindow, Until: f.rejected.Resets.Local(), Text: text, Source: source}, true
	case certain:
		return r.broken(x.text, source), false
	}
	return Meaning{}, false
}

// refused adds to a rejection in words what fields beside them say: how long to wait, where the words do not, and when the
// window that an event called rejected resets, to the second.
func (r *reading) refused(f *finding, m Meaning) Meaning {
	if m.Kind.Throttle() && m.Wait == 0 && m.Until.IsZero() {
		m.Wait = f.fault.wait
	}
	if f.rejected.HasUsed && (m.Kind == sluice.UsageWindow || m.Kind == sluice.RateLimit) {
		m.Kind = sluice.UsageWindow
		if !f.rejected.Resets.IsZero() {
			zone := time.Local
			if !m.Until.IsZero() { // the words name one, and the event is exact
				zone = m.Until.Location()
			}
			m.Until, m.Wait = f.rejected.Resets.In(zone), 0
		}
	}
	return m
}

// words reads what a command that failed says in words, and what its exit code means.
func (r *reading) words() (Meaning, bool) {
	code, known := r.cli.exits[r.end.ExitCode]
	source := fmt.Sprintf("exit code %d", r.end.ExitCode)
	if known && code.status == 0 {
		m := Meaning{Kind: code.kind, Text: clip(code.means + ": " + lastLine(r.end.Stderr)), Source: source}
		if code.kind == sluice.CommandFailed {
			m.Text = clip(r.status() + ": " + code.means)
		}
		return m, true
	}
	if v := r.out.classify(0, r.cli.reason(r.end.Stderr)); v.Kind != sluice.OK {
		return r.of(v, "stderr"), true
	}
	for _, record := range r.end.Records {
		if v := r.out.classify(0, string(record.Body)); v.Kind != sluice.OK {
			return r.of(v, record.Name), true
		}
	}
	// Where events are, or the command crashed with an exception of its own, standard output holds no error's words.
	if !r.out.spoke && !crashed(r.end.Stderr) {
		said := string(r.end.Stdout)
		if r.cli.name != "" { // its answers go there, and of its errors only notices
			said = r.cli.ending(r.cli.notices, r.end.Stdout)
		}
		if v := r.out.classify(0, said); v.Kind != sluice.OK {
			return r.of(v, "stdout"), true
		}
	}
	if known {
		if v := provider.Classify(r.cli.of(), code.status, nil, nil, r.now); v.Kind != sluice.OK {
			v.Message = cmp.Or(v.Message, fmt.Sprintf("the provider answered with status %d", code.status))
			return r.of(v, source), true
		}
	}
	return Meaning{}, false
}

// classify says what a text means that stands where an error may: without a status, the notice or the error with which it ends.
func (f *finding) classify(status int, text string) provider.Verdict {
	said := text
	if status == 0 {
		said = cmp.Or(f.cli.ending(f.cli.notices, []byte(text)), failure([]byte(text)))
	}
	v := f.verdict(status, said)
	if v.Kind.Throttle() && v.Wait == 0 && v.Until.IsZero() {
		v.Wait = stated(text)
	}
	return v
}

// verdict classifies an error's words. What is in an error's form and of no known kind says only that the command failed.
func (f *finding) verdict(status int, text string) provider.Verdict {
	known := text
	for _, p := range phrases {
		known = strings.ReplaceAll(known, p.own, p.known)
	}
	v := provider.ClassifyText(f.cli.of(), status, known, f.now)
	for _, p := range phrases {
		if known != text {
			v.Message = strings.ReplaceAll(v.Message, p.known, p.own)
		}
	}
	if v.Kind == sluice.ServerError && v.Why.Field == "" {
		return provider.Verdict{}
	}
	return v
}

// of turns a verdict on words into a meaning.
func (r *reading) of(v provider.Verdict, source string) Meaning {
	o := v.Outcome(r.cli.of(), 0, "")
	m := Meaning{Kind: o.Kind, Wait: o.Wait, Until: in(v.Zone, o.Until), Dimension: o.Dimension, Source: source}
	m.Text = cmp.Or(clip(v.Message), clip(v.Why.String()), m.Kind.String())
	if !m.Kind.Throttle() && m.Kind != sluice.QuotaExhausted {
		m.Wait, m.Until = 0, time.Time{}
	}
	return m
}

// in returns an instant in the zone of that name, so that it can be told as it was stated; in local time where there is none.
func in(zone string, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if at, err := time.LoadLocation(zone); err == nil && zone != "" {
		return t.In(at)
	}
	return t.Local()
}

// broken is a failure of the command's own that a source tells of.
func (r *reading) broken(text, source string) Meaning {
	return Meaning{Kind: sluice.CommandFailed, Text: clip(cmp.Or(strings.TrimSpace(text), "an error without words")), Source: source}
}

// byItself is a failure of which nobody says that a provider caused it. m is what a structured source says of it, if one does.
func (r *reading) byItself(m Meaning) Meaning {
	said, source := m.Text, m.Source
	for _, from := range []struct {
		out  []byte
		name string
	}{{r.end.Stderr, "stderr"}, {r.end.Stdout, "stdout"}} {
		if said == "" && (from.name == "stderr" || !r.out.spoke) {
			said, source = lastLine(from.out), from.name
		}
	}
	if said == "" {
		return Meaning{Kind: sluice.CommandFailed, Text: r.status(), Source: "exit status"}
	}
	return Meaning{Kind: sluice.CommandFailed, Text: clip(r.status() + ": " + said), Source: source}
}

// status says how the command ended.
func (r *reading) status() string {
	if r.end.Signal != "" {
		return "killed by " + r.end.Signal
	}
	if r.end.ExitCode == 0 {
		return "exit status 0, but " + r.lacks
	}
	return fmt.Sprintf("exit status %d", r.end.ExitCode)
}

// windows returns what was said of the account's windows, among which is the one that a rejection has closed.
func (r *reading) windows(m *Meaning) []WindowUse {
	f := &r.out
	if m.Kind == sluice.UsageWindow {
		name := f.rejected.Name
		if name == "" {
			name = r.cli.closed(m.Text, m.Until, r.now)
		}
		f.take(WindowUse{Name: name, Used: 1, HasUsed: true, Resets: m.Until.UTC()})
	}
	return f.said.Windows
}
