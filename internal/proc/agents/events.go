package agents

import (
	"bytes"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// finding is what the JSON of one source says of how a command ended. Later events correct earlier ones.
type finding struct {
	cli   *CLI
	now   time.Time
	event []byte // the object that is being read
	alone bool   // it is the whole output, or stands in a record and is none of the CLI's events

	state    state
	fault    fault     // the last one
	spoke    bool      // there was JSON of a known form: what else is in the source is none of an error's words
	rejected WindowUse // HasUsed: a window that is used up
	said     Meaning   // of usage, cost and windows
	reply    provider.Reply
}

// state is what events say of the end.
type state uint8

const (
	unsaid state = iota
	endedWell
	endedBadly
)

// fault is an error that an event states.
type fault struct {
	text    string
	raw     []byte        // the event as it stood, if the error in it is an object
	status  int           // the HTTP status that it names
	certain bool          // it was said to be the end, not only mentioned
	kind    sluice.Kind   // what it is by a field beside its words, which may only say which limit a RateLimit is about
	wait    time.Duration // how long to wait if its words do not say
}

// reader takes from one event, of a CLI's own form, what it says of the end.
type reader func(f *finding, e object)

// object is the members of a JSON object as they stand in the text. What is asked of members that are missing, or of another
// type, is zero.
type object map[string][]byte

// readObject reads an object as far as it is whole: a large one may be cut. whole says that it is.
func readObject(b []byte) (o object, whole bool) { return jsonscan.Members(b) }

// list returns the elements of an array.
func list(b []byte) (all [][]byte) {
	s := jsonscan.New(b)
	for s.Enter('['); s.Next(']'); {
		if v := s.Span(); v != nil {
			all = append(all, v)
		}
	}
	return all
}

func textOf(v []byte) string {
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	return string(jsonscan.Unquote(v))
}

func (o object) text(name string) string { return textOf(o[name]) }

func (o object) object(name string) object {
	inner, _ := readObject(o[name])
	return inner
}

func (o object) is(name string) bool { return string(o[name]) == "true" }

// says reports whether a member is there that is true or false.
func (o object) says(name string) bool { return o.is(name) || string(o[name]) == "false" }

func (o object) number(name string) (float64, bool) { return decimal(o[name]) }

// sum adds up members that are numbers.
func (o object) sum(names ...string) (sum float64) {
	for _, name := range names {
		n, _ := o.number(name)
		sum += n
	}
	return sum
}

// fault returns what the member error says, which is an object with a message or a text. ok says that there is one.
func (o object) fault() (words string, ok bool) {
	v := o["error"]
	if len(v) > 0 && v[0] == '{' {
		return o.object("error").text("message"), true
	}
	words = textOf(v)
	return words, words != ""
}

// status is the HTTP status of an error.
func (o object) status() int { return int(min(o.sum("api_error_status", "error_status"), 999)) }

// wrapped returns the event in one that wraps it.
func (o object) wrapped() (inner object, ok bool) {
	for _, name := range []string{"msg", "payload"} {
		if v := o[name]; len(v) > 0 && v[0] == '{' {
			return readObject(v)
		}
	}
	return nil, false
}

// decimal reads a number that is not below zero, and none of such a size that nothing is counted so far.
func decimal(b []byte) (float64, bool) {
	n, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(n >= 0 && n < 1e15) {
		return 0, false
	}
	return n, true
}

// fail notes an error, in place of one that was noted before.
func (f *finding) fail(x fault) { f.state, f.fault = endedBadly, x }

// used notes what a command used in all.
func (f *finding) used(input, cached, output float64) {
	const most = 1 << 53
	f.said.Usage = sluice.Usage{Input: int(min(input, most)), CachedInput: int(min(cached, most)), Output: int(min(output, most))}
	f.said.HasUsage = true
}

// adopt takes from another source what this one does not say of usage, cost and windows.
func (f *finding) adopt(g *finding) {
	if !f.said.HasUsage {
		f.said.Usage, f.said.HasUsage = g.said.Usage, g.said.HasUsage
	}
	if !f.said.HasCost {
		f.said.Cost, f.said.HasCost = g.said.Cost, g.said.HasCost
	}
	for _, use := range g.said.Windows {
		f.take(use)
	}
}

// hear has the CLI's readers look at an event.
func (f *finding) hear(event []byte, e object) {
	f.event = event
	for _, read := range f.cli.events {
		read(f, e)
	}
}

// heard has the readers look at an object if it has the form of an event.
func (f *finding) heard(text []byte, e object) bool {
	if e.text("type") == "" && e["msg"] == nil && e["payload"] == nil {
		return false
	}
	f.hear(text, e)
	return true
}

// events reads an output as JSON: one value, an array of events, or a line for each.
func (f *finding) events(out []byte) {
	text := bytes.TrimSpace(out)
	if len(text) == 0 || bytes.IndexByte(text, '{') < 0 {
		return
	}
	if text[0] == '[' {
		if !jsonscan.Valid(text) {
			return
		}
		for _, event := range list(text) {
			if e, ok := readObject(event); ok && e.text("type") != "" {
				f.hear(event, e)
			}
		}
		return
	}
	e, whole := readObject(text)
	if !whole {
		f.lines(text, (*finding).heard)
	}
	if whole || !f.spoke && e.text("type") == "result" && e.says("is_error") { // the middle of a long result is cut out
		f.alone = true
		f.hear(text, e)
	}
}

// lines reads an object on each line. read reports whether one is of a form that counts. Most must be: an answer may quote one.
func (f *finding) lines(text []byte, read func(f *finding, line []byte, e object) bool) {
	known, others := 0, 0
	trial := *f
	trial.said.Windows = nil
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		e, whole := readObject(line)
		switch {
		case len(line) == 0 || !whole && cutOff(line):
		case whole && read(&trial, line, e):
			known++
		default:
			others++
		}
	}
	if known > others {
		*f = trial
	}
}
