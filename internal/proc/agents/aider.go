package agents

import (
	"bytes"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/errtext"
)

// aider has neither JSON nor exit codes of its own, and calls any provider.
var aider = CLI{name: "aider", programs: []string{"aider"}, text: aiderText, notices: harness}

// aiderText reads what aider --message writes: it prints an error of litellm as a line of its own, tries again for about a
// minute, and ends with an exit code of 0 in any case (aider/coders/base_coder.py, send_message). After each answer it prints
// "Tokens: 4.1k sent, 1.2k cache hit, 120 received. Cost: $0.01 message, $0.02 session.", which takes back errors before it.
func aiderText(f *finding, stdout []byte) {
	var sent, hit, received float64
	var words []byte // of the last error
	kind := sluice.OK
	for line := range bytes.Lines(stdout) {
		line = []byte(strings.Trim(label.ReplaceAllString(errtext.Plain(string(overwritten(line))), ""), "| "))
		switch rest, ok := bytes.CutPrefix(line, []byte("Tokens: ")); {
		case ok && bytes.Contains(rest, []byte(" sent")):
			use, cost, _ := bytes.Cut(rest, []byte(" Cost: "))
			for _, part := range bytes.Split(bytes.TrimRight(use, "."), []byte(", ")) {
				n, what, _ := bytes.Cut(part, []byte(" "))
				switch string(what) {
				case "sent":
					sent += thousands(n)
				case "cache hit":
					hit += thousands(n)
				case "received":
					received += thousands(n)
				}
			}
			f.used(sent, min(hit, sent), received)
			f.aiderCost(cost)
			f.state, words = endedWell, nil
		case bytes.HasPrefix(line, []byte("Model ")) && bytes.HasSuffix(line, []byte(" has hit a token limit!")):
			words, kind = line, sluice.ContextLength
		case litellmError(line):
			words, kind = line, sluice.OK
		case words != nil && len(words) < mostRead && len(line) > 0 && !bytes.HasPrefix(line, []byte("Retrying in ")):
			words = append(append(words[:len(words):len(words)], '\n'), line...)
		}
	}
	if words != nil {
		f.fail(fault{text: string(words), certain: true, kind: kind})
	}
}

// litellmError reports whether a line begins with the name of an exception of litellm.
func litellmError(line []byte) bool {
	name, ok := bytes.CutPrefix(line, []byte("litellm."))
	if !ok {
		return false
	}
	name, _, ok = bytes.Cut(name, []byte(":"))
	if !ok || len(name) > 40 || bytes.ContainsAny(name, " \t") {
		return false
	}
	return bytes.HasSuffix(name, []byte("Error")) || string(name) == "Timeout"
}

// aiderCost reads what the session has cost so far, which stands last.
func (f *finding) aiderCost(b []byte) {
	sum, ok := bytes.CutSuffix(b, []byte(" session."))
	if usd, is := decimal(sum[bytes.LastIndexByte(sum, '$')+1:]); ok && is {
		f.said.Cost, f.said.HasCost = usd, true
	}
}

// thousands reads a number as aider writes it: 120, 4.1k, and 4,100 in earlier versions.
func thousands(b []byte) float64 {
	digits, k := bytes.CutSuffix(bytes.ReplaceAll(b, []byte(","), nil), []byte("k"))
	n, _ := decimal(digits)
	if k {
		n *= 1000
	}
	return n
}
