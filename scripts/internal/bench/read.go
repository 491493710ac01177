package bench

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Reader finds figures in what a command printed.
type Reader func(output string) []Figure

// All reads with several readers.
func All(readers ...Reader) Reader {
	return func(output string) (all []Figure) {
		for _, read := range readers {
			all = append(all, read(output)...)
		}
		return all
	}
}

var (
	benchLine  = regexp.MustCompile(`^(Benchmark\S*?)(?:-\d+)?\s+\d+\s+(\S.*)$`)
	benchName  = regexp.MustCompile(`^(Benchmark\S*?)(?:-\d+)?\s*$`)
	benchRest  = regexp.MustCompile(`^\s+\d+\s+(\S+ \S+/op.*|\S+ \S+(\s+\S+ \S+)*)$`)
	testStarts = regexp.MustCompile(`^=== (?:RUN|NAME|CONT)\s+(\S+)`)
	testEnds   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP|BENCH): (\S+?)(?:-\d+)?(?: \(([\d.]+)s\))?$`)
	logPrefix  = regexp.MustCompile(`^\s+\S+\.go:\d+: `)
)

// Benchmarks reads the lines of Go's benchmarks: a figure for each unit, named after the benchmark.
func Benchmarks(output string) (all []Figure) {
	name := ""
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		if m := benchLine.FindStringSubmatch(line); m != nil {
			all, name = append(all, metrics(m[1], m[2])...), ""
		} else if m := benchName.FindStringSubmatch(line); m != nil {
			name = m[1] // the program printed something between the name and the figures
		} else if m := benchRest.FindStringSubmatch(line); m != nil && name != "" {
			all, name = append(all, metrics(name, m[1])...), ""
		}
	}
	return all
}

func metrics(name, rest string) (all []Figure) {
	words := strings.Fields(rest)
	for i := 0; i+1 < len(words); i += 2 {
		if v, err := strconv.ParseFloat(words[i], 64); err == nil {
			all = append(all, Figure{Name: strings.ReplaceAll(name, "_", " "), Unit: words[i+1], Values: []float64{v}})
		}
	}
	return all
}

// Verdicts reads how tests ended: 1 or 0 in "passed", and "s". What was skipped is not there.
func Verdicts(output string) (all []Figure) {
	for line := range strings.Lines(output) {
		m := testEnds.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || m[1] == "SKIP" || m[1] == "BENCH" {
			continue
		}
		passed, name := 0.0, strings.ReplaceAll(m[2], "_", " ")
		if m[1] == "PASS" {
			passed = 1
		}
		all = append(all, Figure{Name: name, Unit: "passed", Values: []float64{passed}})
		if s, err := strconv.ParseFloat(m[3], 64); err == nil {
			all = append(all, Figure{Name: name, Unit: "s", Values: []float64{s}})
		}
	}
	return all
}

// Said reads lines by a pattern whose named groups are units. A figure is named as the group "name", or after the test or the
// benchmark that said it. A line of a test's log is matched without where it comes from.
func Said(pattern string) Reader {
	re := regexp.MustCompile(pattern)
	return func(output string) (all []Figure) {
		test := ""
		for line := range strings.Lines(output) {
			line = strings.TrimRight(line, "\n")
			for _, starts := range []*regexp.Regexp{testStarts, benchName, benchLine} {
				if m := starts.FindStringSubmatch(line); m != nil {
					test = m[1]
				}
			}
			if m := testEnds.FindStringSubmatch(line); m != nil {
				test = m[2]
			}
			m := re.FindStringSubmatch(logPrefix.ReplaceAllString(line, ""))
			if m == nil {
				continue
			}
			name := test
			if i := re.SubexpIndex("name"); i > 0 {
				name = m[i]
			}
			name = strings.TrimSpace(strings.ReplaceAll(name, "_", " "))
			for i, unit := range re.SubexpNames() {
				if i > 0 && unit != "" && unit != "name" && m[i] != "" {
					all = append(all, said(name, unit, m[i]))
				}
			}
		}
		return all
	}
}

// said is one figure: a number, a time in seconds, or a text.
func said(name, unit, text string) Figure {
	f := Figure{Name: name, Unit: unit}
	text = strings.TrimSpace(text)
	if v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64); err == nil {
		f.Values = []float64{v}
	} else if d, err := time.ParseDuration(text); err == nil {
		f.Values = []float64{d.Seconds()}
	} else {
		f.Text = text
	}
	return f
}

// Cells reads lines of a table whose cells have | between them. Units are those of the cells, "name" is the row's and "" is none.
// Lines with another number of cells, and those of which no cell is a number, are none.
func Cells(units ...string) Reader {
	return func(output string) (all []Figure) {
		for line := range strings.Lines(output) {
			cells := strings.Split(strings.Trim(logPrefix.ReplaceAllString(line, ""), "| \n"), "|")
			if len(cells) != len(units) {
				continue
			}
			var row []Figure
			name, numbers := "", 0
			for i, cell := range cells {
				switch cell = strings.TrimSpace(cell); units[i] {
				case "name":
					name = cell
				case "":
				default:
					f := said("", units[i], strings.TrimSuffix(cell, " %"))
					numbers += len(f.Values)
					row = append(row, f)
				}
			}
			if numbers == 0 {
				continue
			}
			for _, f := range row {
				f.Name = name
				all = append(all, f)
			}
		}
		return all
	}
}

// Stress reads the document that sluice stress prints: the figures of a level, named after it.
func Stress(output string) (all []Figure) {
	start := strings.IndexByte(output, '{')
	if start < 0 {
		return nil
	}
	var doc struct {
		Level   string  `json:"level"`
		Took    float64 `json:"took_ms"`
		Calls   float64 `json:"calls"`
		Outcome string  `json:"outcome"`
		Missed  []string
		Rows    []struct {
			Name  string   `json:"name"`
			Value *float64 `json:"value"`
		} `json:"rows"`
	}
	if json.NewDecoder(strings.NewReader(output[start:])).Decode(&doc) != nil {
		return nil
	}
	add := func(unit string, v float64) {
		all = append(all, Figure{Name: doc.Level, Unit: unit, Values: []float64{v}})
	}
	add("min", doc.Took/60_000)
	add("calls", doc.Calls)
	add("missed", float64(len(doc.Missed)))
	for _, row := range doc.Rows {
		if row.Value != nil {
			add(row.Name, *row.Value)
		}
	}
	return append(all, Figure{Name: doc.Level, Unit: "outcome", Text: doc.Outcome})
}
