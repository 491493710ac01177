package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// explainOptions are the flags of the explain command.
type explainOptions struct {
	status   int
	headers  []string
	provider string
	json     bool
	lines    bool
}

// longestError is how much is read of an error, and of a line of them.
const longestError = 16 << 20

// newExplain returns the command that says what an error means.
func newExplain(s *term.Streams) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain [FILE|-]",
		Short: "Explain an error, and how Sluice handles it",
		Long: `Explain the meaning of an error, the wait time, and how Sluice handles the error. Nothing is sent, and no settings are
read.

The error can be any text: a response body, a whole response, an SDK exception, agent output or a log line. The text is
read from FILE or standard input.

With --jsonl, each input line is an object with the field text and the optional fields status, headers, channel (http,
sdk or cli), provider and now. One line is printed per input line. If an input line is invalid, the errors in
valid lines are still explained, and the exit code is 2.`,
		Example: `  sluice explain error.txt
  some-agent 2>&1 | sluice explain
  sluice explain --status 429 --header 'retry-after: 20' body.json
  sluice explain --provider gemini --json body.json
  sluice explain --jsonl errors.jsonl > verdicts.jsonl`,
		Args: atMost(1, "one file"),
		RunE: func(_ *cobra.Command, args []string) error { return runExplain(s, o, args) },
	}
	define(cmd, flagGroup{"Error", []flag{
		{name: "status", field: &o.status, metavar: "N", help: "Set the HTTP status of the response", common: true},
		{name: "header", field: &o.headers, metavar: "'NAME: VALUE'", help: "Set a header of the response; repeatable", common: true},
		{name: "provider", field: &o.provider, metavar: "NAME", help: "Set the provider (default: recognized from the error)", common: true},
		{name: "json", field: &o.json, help: "Print one JSON document", common: true, without: "jsonl"},
		{name: "jsonl", field: &o.lines, help: "Read and print one JSON object per line", common: true},
	}})
	return cmd
}

// runExplain explains one text, or a file of them.
func runExplain(s *term.Streams, o explainOptions, args []string) error {
	c, err := o.puzzle()
	if err != nil {
		return err
	}
	in, name := s.In, "standard input"
	if len(args) == 1 && args[0] != "-" {
		name = args[0]
		f, err := os.Open(name)
		if err != nil {
			return fault.New(fault.File, err, "name a file with the error, or send it on standard input")
		}
		defer f.Close()
		in = f
	}
	if o.lines {
		return explainLines(s, in, name, c)
	}
	text, err := io.ReadAll(io.LimitReader(in, longestError+1))
	switch {
	case err != nil:
		return fault.New(fault.File, fmt.Errorf("%s: %w", name, err), "name a file with the error, or send it on standard input")
	case len(text) > longestError:
		return fault.New(fault.Input, fmt.Errorf("%s is longer than %d MiB", name, longestError>>20), "send only the text of the error")
	case strings.TrimSpace(string(text)) == "" && c.status == 0 && len(c.headers) == 0:
		return fault.New(fault.Input, fmt.Errorf("%s is empty", name), "write the error into the file: sluice explain error.txt")
	}
	c.text = string(text)
	v := c.solve()
	if o.json {
		return s.JSON(newExplanation(v))
	}
	if err := v.print(s); err != nil {
		return err
	}
	if v.Kind == sluice.RateLimit && v.Limit == 0 && len(v.budgets) == 0 {
		s.Errorf("hint: measure the limit with sluice find --model M\n")
	}
	return nil
}

// puzzle is an error to be explained.
type puzzle struct {
	provider provider.Provider
	channel  string // http, sdk, cli; "" is chosen by what is known
	status   int
	headers  http.Header
	text     string
	now      time.Time
	told     bool // the line states now, so that no header says it
}

// puzzle returns what the flags say of the error.
func (o *explainOptions) puzzle() (puzzle, error) {
	c := puzzle{status: o.status, now: time.Now()}
	if o.status != 0 && (o.status < 100 || o.status > 599) {
		return c, fault.New(fault.Value, fmt.Errorf("--status %d is not an HTTP status", o.status), "use a status such as --status 429, or omit it")
	}
	var err error
	if c.headers, err = account.ParseHeader(o.headers); err != nil {
		return c, err
	}
	if o.provider != "" {
		var ok bool
		if c.provider, ok = provider.Lookup(o.provider); !ok {
			return c, account.UnknownProvider(provider.Published(), o.provider)
		}
	}
	return c, nil
}

// lastYear is the last year of a time that an error may have come at: JSON has no years after 9999, which a reset may lie in.
const lastYear = 9000

// solve classifies the error: as an answer if it is known to be one, else by what the text looks like.
func (c puzzle) solve() solution {
	head := c.headers
	if _, pasted, ok := provider.Head(c.text); ok && len(head) == 0 {
		head = pasted
	}
	if at, err := http.ParseTime(head.Get("Date")); err == nil && at.Year() <= lastYear && !c.told {
		c.now = at.In(c.now.Location()) // an answer says when it came
	}
	v := solution{Verdict: c.classify(), now: c.now, asked: provider.RetryAfter(head, nil, c.now)}
	v.budgets = c.provider.Stated(head, c.now)
	return v
}

// classify returns what the error means.
func (c puzzle) classify() provider.Verdict {
	answer := c.status != 0 || len(c.headers) > 0
	if answer && c.channel != "sdk" && c.channel != "cli" {
		return provider.Classify(c.provider, c.status, c.headers, []byte(c.text), c.now).Proven(c.status)
	}
	v := provider.ClassifyText(c.provider, c.status, c.text, c.now)
	if v.Kind.Throttle() && v.Wait == 0 {
		v.Wait = provider.RetryAfter(c.headers, nil, c.now)
	}
	return v
}

// explainLines explains a file of errors, line by line. What is not in a line is as the flags say.
func explainLines(s *term.Streams, in io.Reader, name string, flags puzzle) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	enc := json.NewEncoder(s.Out) // a line is one write: who waits for it gets it, and keys are struck out of it as a whole
	enc.SetEscapeHTML(false)
	n, broken, solved := 0, 0, 0
	var unread error
	for {
		line, err := readLine(lines)
		if err != nil && !errors.Is(err, errLongLine) {
			unread = err
			break
		}
		if n++; n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // some editors write it
		}
		if err == nil && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		c := flags
		if err == nil {
			err = c.read(line)
		}
		if err != nil {
			broken++
			s.Errorf("sluice: error: %s line %d: %s\n", name, n, err)
			continue
		}
		solved++
		if err := enc.Encode(newExplanation(c.solve())); err != nil {
			return err
		}
	}
	switch {
	case unread != io.EOF:
		return fault.New(fault.File, fmt.Errorf("%s line %d: %w", name, n+1, unread), "name a readable file, or send it on standard input")
	case broken > 0:
		return fault.New(fault.Input, fmt.Errorf("%s of %s lines of %s are invalid", prose.Group(broken), prose.Group(broken+solved), name),
			`write a JSON object on each line, such as {"text": "...", "status": 429}`)
	case solved == 0:
		return fault.New(fault.Input, fmt.Errorf("%s is empty", name), `write a JSON object on each line, such as {"text": "...", "status": 429}`)
	}
	return nil
}

var errLongLine = fmt.Errorf("the line is longer than %d MiB", longestError>>20)

// readLine returns the next line. Of one that is too long it reads all and returns errLongLine; what follows can be read.
func readLine(r *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > longestError; long {
			line = nil
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0 && !long):
			return nil, err
		case long:
			return nil, errLongLine
		default:
			return line, nil
		}
	}
}

// read fills in what a line says. The provider is a hint: a name that is not known means none.
func (c *puzzle) read(line []byte) error {
	var in struct {
		Status   json.RawMessage `json:"status"`
		Headers  map[string]any  `json:"headers"`
		Channel  string          `json:"channel"`
		Text     *string         `json:"text"`
		Provider string          `json:"provider"`
		Now      string          `json:"now"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return plainJSON(err)
	}
	if status := strings.Trim(string(in.Status), `"`); status != "" && status != "null" {
		n, err := strconv.Atoi(status)
		if err != nil || n < 0 || n > 999 {
			return errors.New("status is not an HTTP status")
		}
		c.status = n
	}
	switch in.Channel {
	case "", "http", "sdk", "cli":
	default:
		return fmt.Errorf("channel %q is not http, sdk or cli", in.Channel)
	}
	if in.Text == nil && c.status == 0 && len(in.Headers) == 0 {
		return errors.New("text is missing")
	}
	if in.Text != nil {
		c.text = *in.Text
	}
	if in.Now != "" {
		at, err := time.Parse(time.RFC3339, in.Now)
		if err != nil || at.Year() > lastYear {
			return fmt.Errorf("now %q is not a time such as 2026-03-01T12:00:00Z", in.Now)
		}
		c.now, c.told = at, true
	}
	c.channel = in.Channel
	if p, ok := provider.Lookup(in.Provider); ok {
		c.provider = p
	}
	return c.readHeaders(in.Headers)
}

// readHeaders adds headers whose values are texts, numbers or lists of them.
func (c *puzzle) readHeaders(from map[string]any) error {
	if len(from) > 0 {
		c.headers = c.headers.Clone()
	}
	for _, name := range slices.Sorted(maps.Keys(from)) { // names that differ in case alone are of one header, whose values have an order
		values, isList := from[name].([]any)
		if !isList {
			values = []any{from[name]}
		}
		for _, v := range values {
			switch v := v.(type) {
			case nil:
			case string:
				c.headers.Add(name, v)
			case float64:
				c.headers.Add(name, strconv.FormatFloat(v, 'f', -1, 64))
			default:
				return fmt.Errorf("header %s is neither a text nor a list of texts", strconv.Quote(name))
			}
		}
	}
	return nil
}

// plainJSON says what is wrong with a line in place of Go's types.
func plainJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field == "" {
			return fmt.Errorf("a JSON %s instead of an object", wrong.Value)
		}
		return fmt.Errorf("%s has the wrong type: JSON %s", wrong.Field, wrong.Value)
	}
	return errors.New("not valid JSON")
}

// meaning is what a kind means, and what a run does about it.
type meaning struct{ means, action, does string }

func meaningOf(k sluice.Kind) meaning {
	return map[sluice.Kind]meaning{
		sluice.OK:             {"no error", "none", "nothing"},
		sluice.RateLimit:      {"the provider asks to slow down", "pause", "keep the item, and correct the limit or pause requests that share it; no attempt is spent"},
		sluice.Overloaded:     {"the provider has no capacity", "pause", "keep the item and pause requests to the model; no attempt is spent"},
		sluice.UsageWindow:    {"an allowance of hours, days or a plan is used up", "pause_until_reset", "keep the item and pause requests that share the allowance until it is renewed; no attempt is spent"},
		sluice.QuotaExhausted: {"no credit is left, or a spend cap is reached", "stop", "stop the run, which can be resumed: no item can succeed"},
		sluice.Rejected:       {"the request is not allowed", "fail", "retry the item once at the end, then fail it; stop the run if no other item succeeds"},
		sluice.Blocked:        {"a firewall or proxy responded instead of the provider", "fail", "retry the item once at the end, then fail it; stop the run if no other item succeeds"},
		sluice.Auth:           {"the key was rejected", "stop", "exclude the key if other requests with it are rejected too; without another key, stop the run, which can be resumed"},
		sluice.Timeout:        {"no response within the timeout", "retry", "retry after a backoff; an attempt is spent"},
		sluice.Network:        {"the connection failed or was interrupted", "retry", "retry after a backoff; an attempt is spent if the request was sent"},
		sluice.ServerError:    {"the provider had an internal error", "retry", "retry after a backoff; an attempt is spent"},
		sluice.CommandFailed:  {"a command failed without an error of a provider", "retry", "retry after a backoff; an attempt is spent"},
		sluice.BadRequest:     {"the request is invalid", "fail", "fail the item: the same request would be rejected again"},
		sluice.ContextLength:  {"the request alone exceeds the model's context window or a limit", "fail", "fail the item: the same request would be rejected again"},
		sluice.ContentFilter:  {"rejected for its content", "fail", "fail the item: the same request would be rejected again"},
	}[k]
}
