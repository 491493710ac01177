package errtext

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Decision is the row of the table that an error falls under, and by what.
type Decision struct {
	*Pattern
	Mark    Mark   // the name by which it holds; no Field: none
	Message string // the sentence by which it holds; "": none
}

// Worded reports whether the decision rests on words, which may quote the request.
func (d *Decision) Worded() bool { return d.Message != "" || d.Mark.Said }

// Rule returns the name of the row, which says if it is by words where it may also be by names.
func (d *Decision) Rule() string {
	if d.Message != "" && d.names != "" {
		return d.Name + " in words"
	}
	return d.Name
}

// Reason returns what was read, and what it was.
func (d *Decision) Reason(status int) (field, value string) {
	switch {
	case d.Message != "":
		return "message", d.Message
	case d.Mark.Field != "":
		return d.Mark.Field, d.Mark.Value
	}
	return "status", strconv.Itoa(status)
}

// Decide returns the first row of the table that the error falls under. ok is false if there is none.
func (e *Error) Decide(status int) (d Decision, ok bool) {
	class := status // words mean less where a name says which class of errors it is
	for i := range table {
		if p := &table[i]; p.class > 0 && p.stands(status) && class == status {
			if _, ok := e.Named(p.fits); ok {
				class = p.class
			}
		}
	}
	for i := range table {
		p := &table[i]
		if p.names == "" && p.words == nil && p.stands(status) {
			return Decision{Pattern: p}, true
		}
		if m, ok := e.Named(p.fits); ok && p.names != "" && p.stands(status) {
			return Decision{Pattern: p, Mark: m}, true
		}
		if m, ok := e.says(p); ok && p.stands(class) {
			return Decision{Pattern: p, Message: m}, true
		}
	}
	return d, false
}

// fits reports whether the row has the name of a mark.
func (p *Pattern) fits(m *Mark) bool {
	for each := range strings.FieldsSeq(p.names) {
		field, name, qualified := strings.Cut(each, "=")
		if !qualified {
			name = field
		}
		if like(name, m.Name) && (!qualified || PlainName(m.Field) == field) {
			return true
		}
	}
	return false
}

// Named returns the first mark that fits, of those in the structure before those in sentences.
func (e *Error) Named(fits func(*Mark) bool) (found Mark, ok bool) {
	for i := range e.Marks {
		if m := &e.Marks[i]; (!ok || !m.Said && found.Said) && fits(m) {
			found, ok = *m, true
		}
	}
	return found, ok
}

// rated matches a sentence that speaks of how much fits into a time, and not of how much fits into a request.
var rated = regexp.MustCompile(`(?i)per[- ](?:min|sec|day|hour|86400)|/min|/day|\b[tr]p[md]\b|rate limit|daily|monthly|weekly`)

// says returns the first message that says one of the row's words. A page of a proxy says the same whatever the cause.
func (e *Error) says(p *Pattern) (string, bool) {
	if e.Page {
		return "", false
	}
	for i, words := range e.words {
		for j := range p.says {
			if _, _, ok := p.says[j].in(words); ok && !(p.Name == "context length in words" && rated.MatchString(e.Messages[i])) {
				return e.Messages[i], true
			}
		}
	}
	return "", false
}

// Words for a field that a request may not have, and for a value that a field may not have.
var (
	refused = regexp.MustCompile(`(?i)unsupported|not (?:currently )?support|(?:does not|doesn't|cannot|can't|no longer) (?:\w+ ){0,2}(?:support|accept|allow|take|exist)|` +
		`unrecogni[sz]ed|unexpected|unknown\W*[_ ](?:param|field|name|arg|prop|key|request|option|attribute|'?max_|'?stream_)|` +
		`extra[_ ]|additional propert|not permitted|not allowed|not accepted|deprecated|removed|replaced|instead|rather than|did you mean|` +
		`\buse\b|cannot find field|no such|invalid (?:request )?(?:argument|parameter|field|property|key)`)
	ofValue = regexp.MustCompile(`(?i)unsupported[_ ]value|too (?:large|big|high|long|small)|at (?:most|least)|` +
		`(?:less|greater|larger|more|fewer|smaller) than|exceed|maximum|minimum|out of range|valid range|above|below`)
)

// Unsupported returns the first of the fields that a request may not have, as the error says; "" if it says that of none.
func (e *Error) Unsupported(fields []string) string {
	said := slices.Clone(e.Messages)
	for _, m := range e.Marks {
		said = append(said, m.Value)
	}
	if !slices.ContainsFunc(said, refused.MatchString) || slices.ContainsFunc(said, ofValue.MatchString) {
		return ""
	}
	names := e.Fields
	if len(names) == 0 {
		names = e.Messages
	}
	for _, f := range fields {
		if slices.ContainsFunc(names, regexp.MustCompile(`(?:^|\W)`+regexp.QuoteMeta(f)+`(?:\W|$)`).MatchString) {
			return f
		}
	}
	return ""
}

// Known reports whether the error has the form of one, though no row of the table knows it.
func (e *Error) Known() bool { return e.known }

// Wait returns how long the error itself asks to wait: by a member, a sentence, or what its numbers come to. told says that the
// provider asks, and not a client that tries again by itself, which says nothing of why.
func (e *Error) Wait(now time.Time) (d time.Duration, told bool) {
	var own, asked time.Duration
	for _, m := range e.Messages {
		t, o := Wait(m)
		if asked == 0 {
			asked = t
		}
		if own == 0 {
			own = o
		}
	}
	switch {
	case e.ResetsIn > 0 && asked > e.ResetsIn && asked < e.ResetsIn+time.Second:
		return asked, true // Gemini's retryDelay is its own sentence cut down to the second
	case e.ResetsIn > 0:
		return e.ResetsIn, true
	case e.ResetsAt.After(now):
		return min(e.ResetsAt.Sub(now), MaxWait), true
	case asked > 0:
		return asked, true
	}
	if f, _ := e.Figures(); f.Wait() > 0 {
		return f.Wait(), true
	}
	return own, false
}

// Until returns the instant at which the error says that access comes back: by a member, or by a sentence, then worded.
func (e *Error) Until(now time.Time) (until time.Time, worded bool) {
	if !e.ResetsAt.IsZero() {
		return e.ResetsAt, false
	}
	for _, m := range e.Messages {
		if until = Until(m, now); !until.IsZero() {
			return until, true
		}
	}
	return until, false
}

// Figures returns the numbers of the first message that has a limit, or that names a dimension, and that message.
func (e *Error) Figures() (Figures, string) {
	if e.figured != nil {
		return e.figured.Figures, e.figured.message
	}
	var best figured
	for _, m := range e.Messages {
		f := figures(m)
		if f.Limit > 0 || best.Dimension == limits.AnyDimension {
			best = figured{f, m}
		}
		if f.Limit > 0 {
			break
		}
	}
	if best.Dimension == limits.AnyDimension {
		best.Dimension = e.dimension()
	}
	e.figured = &best
	return best.Figures, best.message
}

type figured struct {
	Figures
	message string
}

// dimensionNames are the dimensions by the names that errors bear. OpenAI's are "tokens" and "requests".
var dimensionNames = []struct {
	name      string
	dimension limits.Dimension
}{
	{"tokens", limits.Tokens}, {"requests", limits.Requests},
	{"*requestsperday*", limits.RequestsPerDay}, {"*tokensperday*", limits.TokensPerDay},
	{"*requestsperminute*", limits.Requests}, {"*inputtokens*perminute*", limits.InputTokens}, {"*concurren*", limits.Concurrency},
}

// dimension returns which limit the error's names are of.
func (e *Error) dimension() limits.Dimension {
	for _, m := range e.Marks {
		for _, d := range dimensionNames {
			if like(d.name, m.Name) {
				return d.dimension
			}
		}
	}
	return limits.AnyDimension
}

// allowance are the words for a limit of a day or longer.
var allowance = regexp.MustCompile(`(?i)(?:per |/)(?:day|week|month|86400)|\([rt]pd\)|\b[rt]pd\b|for today|today's|for the day|` +
	`this (?:month|week)|daily|weekly|monthly`)

// Allowance reports whether the limit that the error speaks of is one of a day or longer.
func (e *Error) Allowance() bool { return slices.ContainsFunc(e.Messages, allowance.MatchString) }
