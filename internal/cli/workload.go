package cli

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// workloadFile is what a file of requests, or of their lengths, says of a workload.
type workloadFile struct {
	calls     []plan.Call
	model     string // of all of them; "" when the file does not say
	others    int    // requests for other models, which have limits of their own
	hasOutput bool   // the file says how long the answers were
}

// readWorkload reads the lines that a run would send, or a table of lengths.
func (o *planOptions) readWorkload(s *streams, account provider.Provider) (workloadFile, error) {
	var f workloadFile
	var err error
	if strings.HasSuffix(strings.ToLower(o.workload), ".csv") {
		f, err = readLengths(o.workload)
	} else {
		f, err = o.readRequests(s, account)
	}
	if err == nil && f.hasOutput && o.flags.Changed("output-tokens") {
		return f, usageError(fmt.Errorf("--output-tokens, and %s says them too", o.workload), "leave --output-tokens out")
	}
	if err == nil && len(f.calls) == 0 {
		err = usageError(fmt.Errorf("%s has no requests", o.workload), "give a file with a request on each line")
	}
	return f, err
}

// readRequests reads the lines that a run would send.
func (o *planOptions) readRequests(s *streams, account provider.Provider) (workloadFile, error) {
	cfg := batch.Config{
		Input: o.workload, Stdin: s.in, Registry: o.kept.registry, Provider: account, Model: o.model, MaxTokens: o.maxTokens,
		BaseURL: "http://nowhere.invalid/v1", // nothing is sent: a model may be of a server that is not known here
	}
	models := make(map[string][]plan.Call)
	for r, err := range batch.Requests(cfg) {
		if err != nil {
			return workloadFile{}, workloadError(err)
		}
		c := plan.Call{Input: r.Price.Cost.Input, MaxTokens: r.Price.Cost.MaxOutput}
		if r.Endpoint == provider.Embeddings {
			c.Output = plan.NoOutput
		}
		models[r.Model] = append(models[r.Model], c)
	}
	names := slices.Sorted(maps.Keys(models))
	if len(names) < 2 {
		f := workloadFile{}
		for _, name := range names {
			f.model, f.calls = name, models[name]
		}
		return f, nil
	}
	f := workloadFile{model: o.model, calls: models[o.model]}
	for i, name := range names {
		f.others += len(models[name])
		names[i] = fmt.Sprintf("%s (%s)", name, group(len(models[name])))
	}
	f.others -= len(f.calls)
	if len(f.calls) == 0 {
		return f, usageError(fmt.Errorf("%s is for several models, which have limits of their own: %s", o.workload,
			strings.Join(names, ", ")), "choose one with --model")
	}
	return f, nil
}

// workloadError is an error of reading lines, as run reports it.
func workloadError(err error) error {
	if wrong, ok := errors.AsType[*batch.ConfigError](err); ok && wrong.Field == "Input" {
		return usageError(fmt.Errorf("--workload: %w", wrong.Err), "give a file of JSON lines, a table as .csv, or - for standard input")
	}
	hint := hintOf(err)
	if hint == "" {
		hint = "mend the line: the forms are those of sluice run"
	}
	return usageError(err, "%s", hint)
}

// columns are what a table's columns may be called, without case and punctuation.
func columns() map[string][]string {
	return map[string][]string{
		"input":  {"contexttokens", "inputtokens", "prompttokens"},
		"cached": {"cachedtokens", "cachedinputtokens"},
		"output": {"generatedtokens", "outputtokens", "completiontokens"},
		"max":    {"maxtokens", "maxcompletiontokens", "maxoutputtokens"},
	}
}

// readLengths reads a table with a column of input tokens and others.
func readLengths(path string) (workloadFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return workloadFile{}, usageError(fmt.Errorf("--workload: %w", err), "give a table with a header, or a file of JSON lines")
	}
	defer file.Close()
	return parseLengths(path, file)
}

// parseLengths reads the table of that name.
func parseLengths(path string, from io.Reader) (workloadFile, error) {
	r := csv.NewReader(withoutMark(from))
	r.ReuseRecord = true
	t := lengths{path: path, reader: r, at: make(map[string]int)}
	if err := t.header(); err != nil {
		return workloadFile{}, err
	}
	f := workloadFile{hasOutput: t.has("output")}
	for {
		c, err := t.next()
		if err == io.EOF {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		f.calls = append(f.calls, c)
	}
}

// withoutMark strips a byte order mark.
func withoutMark(r io.Reader) io.Reader {
	b := bufio.NewReader(r)
	if mark, _ := b.Peek(3); string(mark) == "\ufeff" {
		b.Discard(3)
	}
	return b
}

// lengths is a table of the lengths of requests.
type lengths struct {
	path   string
	reader *csv.Reader
	names  []string       // of the columns
	at     map[string]int // what columns are at
}

func (t *lengths) has(what string) bool { _, ok := t.at[what]; return ok }

// header finds the columns.
func (t *lengths) header() error {
	record, err := t.reader.Read()
	if err == io.EOF {
		return usageError(fmt.Errorf("%s is empty", t.path), "the first line names the columns, such as input_tokens,output_tokens")
	}
	if err != nil {
		return t.broken(err)
	}
	t.names = slices.Clone(record)
	for i, name := range t.names {
		bare := strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(strings.TrimSpace(name)))
		for what, known := range columns() {
			if !slices.Contains(known, bare) {
				continue
			}
			if first, twice := t.at[what]; twice {
				return usageError(fmt.Errorf("%s line 1: %s and %s say the same", t.path, t.names[first], name), "leave one of them out")
			}
			t.at[what] = i
		}
	}
	if !t.has("input") {
		return usageError(fmt.Errorf("%s line 1: no column of input tokens among %s", t.path, clip(strings.Join(t.names, ", "), 200)),
			"name the columns input_tokens and output_tokens, or ContextTokens and GeneratedTokens")
	}
	return nil
}

// next reads a row.
func (t *lengths) next() (plan.Call, error) {
	record, err := t.reader.Read()
	if err == io.EOF {
		return plan.Call{}, err
	}
	if err != nil {
		return plan.Call{}, t.broken(err)
	}
	var c plan.Call
	to := [...]*int{&c.Input, &c.Cached, &c.Output, &c.MaxTokens}
	for k, what := range [...]string{"input", "cached", "output", "max"} {
		i, ok := t.at[what]
		if !ok || record[i] == "" {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(record[i]))
		if err != nil || n < 0 || what == "input" && n == 0 {
			line, _ := t.reader.FieldPos(i)
			return c, usageError(fmt.Errorf("%s line %d: %s is %q", t.path, line, t.names[i], clip(record[i], 40)),
				"tokens are whole numbers, from 1 up for input")
		}
		if what == "output" && n == 0 {
			n = plan.NoOutput
		}
		*to[k] = n
	}
	return c, nil
}

// broken is what is wrong with the table itself.
func (t *lengths) broken(err error) error {
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		return usageError(fmt.Errorf("%s line %d: %w", t.path, wrong.Line, wrong.Err), "mend the line: it must have as many fields as the header")
	}
	return usageError(fmt.Errorf("%s: %w", t.path, err), "give a file that can be read")
}
