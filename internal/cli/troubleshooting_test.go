package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/cli"
)

// gap stands in a quoted message for what differs.
const gap = "…"

var (
	quotedMessages = regexp.MustCompile("\\*\\*`([^`]+)`\\*\\*")
	verbs          = regexp.MustCompile(`%[-+# 0]*(\d+|\*)?(\.(\d+|\*))?(\[\d+\])?[a-zA-Z]`)
	gaps           = regexp.MustCompile(gap + `+`)
)

// troubleshooting is the document.
const troubleshooting = "../../docs/troubleshooting.md"

// quoted returns the messages of ours that the document explains.
func quoted(t *testing.T) (messages []string) {
	for _, m := range quotedMessages.FindAllStringSubmatch(read(t, troubleshooting), -1) {
		messages = append(messages, m[1])
	}
	return messages
}

// literal is a string of the code, with gaps for what is put into it. ok is false of what is no string.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return strings.ReplaceAll(verbs.ReplaceAllString(text, gap), "%%", "%"), err == nil
	case *ast.BinaryExpr:
		left, isLeft := literal(e.X)
		right, isRight := literal(e.Y)
		if e.Op != token.ADD || !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = gap
		}
		if !isRight {
			right = gap
		}
		return left + right, true
	case *ast.ParenExpr:
		return literal(e.X)
	}
	return "", false
}

// spoken returns all that the code may say, of a file for each.
func spoken(t *testing.T) (texts []string) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "examples" || d.Name() == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			if text, ok := literal(e); ok {
				texts = append(texts, gaps.ReplaceAllString(text, gap))
				return false
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// says reports whether text has the message in it, as whole words.
func says(text, message string) bool {
	word := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for at := 0; ; {
		i := strings.Index(text[at:], message)
		if i < 0 {
			return false
		}
		i += at
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(message):])
		if !word(before) && !word(after) {
			return true
		}
		at = i + 1
	}
}

func TestTheMessagesOfTroubleshootingAreThoseOfTheCode(t *testing.T) {
	texts, messages := spoken(t), quoted(t)
	if len(messages) < 80 {
		t.Fatalf("%d messages are explained, want 80", len(messages))
	}
	said := func(message string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return says(text, message) })
	}
	seen := map[string]bool{}
	for _, message := range messages {
		if seen[message] {
			t.Errorf("%q is explained twice", message)
		}
		seen[message] = true
		if !said(message) {
			t.Errorf("no code says %q", message)
		}
		words := strings.Fields(message)
		for i, word := range words { // a message with another word is none
			if len(word) < 4 || strings.Contains(word, gap) {
				continue
			}
			other := slices.Clone(words)
			other[i] = "un" + word
			if said(strings.Join(other, " ")) {
				t.Errorf("the test lets %q through", strings.Join(other, " "))
			}
			break
		}
	}
}

// met are messages of the document that a command line brings about at once.
var met = []struct{ message, input, args string }{
	{"the model is missing", `{"prompt":"x"}`, "run in.jsonl -o out.jsonl"},
	{"broken JSON at byte …", `{"prompt":`, "run in.jsonl -o out.jsonl --provider sim --model m"},
	{"custom_id … is that of line … too", `{"custom_id":"a","prompt":"x"}` + "\n" + `{"custom_id":"a","prompt":"y"}`, "run in.jsonl -o out.jsonl --provider sim --model m"},
	{"unknown url …: want /v1/chat/completions", `{"custom_id":"a","method":"POST","url":"/v1/foo","body":{}}`, "run in.jsonl -o out.jsonl --provider sim"},
	{"model … is of no provider that is recognised", "x", "run in.jsonl -o out.jsonl --model llama-3"},
	{"… is not set in the environment", "x", "run in.jsonl -o out.jsonl --model gpt-4o-mini"},
	{"the price of model … is not known, so that no sum can bound what it costs", "x", "run in.jsonl -o out.jsonl --provider sim --model m --max-cost 2"},
	{"--set … is not of the form name=json", "x", "run in.jsonl -o out.jsonl --provider sim --model m --set a=b"},
	{"…, and the header names …", "prompt,b\nx,y,z\n", "run in.jsonl --format csv -o out.jsonl --provider sim --model m"},
	{"… at … cannot be reached: …", "x", "run in.jsonl -o out.jsonl --base-url http://127.0.0.1:1/v1 --model m"},
	{"stopped by --…: …", "x", "run in.jsonl -o out.jsonl --provider sim --model m --max-tokens-total 9"},
	{"request is larger than the whole limit", "x", "run in.jsonl -o out.jsonl --provider sim --model m --tpm 9 --max-tokens 99"},
	{"not a result of a batch: want custom_id, and response or error", `{"prompt":"x"}`, "answers in.jsonl"},
	{"not a result of a batch: want custom_id and sluice.input", "x", "run in.jsonl -o junk.jsonl --provider sim --model m"},
	{"no run has left a state at …", "x", "status out.jsonl"},
	{"no limit is known: neither a provider nor limits are named", "x", "plan"},
	{"which tier of …? Its limits differ: …", "x", "plan --provider openai --model gpt-4o"},
	{"there is no upstream", "x", "serve"},
	{"no member … for {…}", `{"a":1}`, "exec --items in.jsonl -- echo {b}"},
	{"the command's word … begins with a dash from the item: …", `{"a":"-rf"}`, "exec --items in.jsonl -- echo {a}"},
	{"needs …, which is neither a tier nor the id of an item: …", `{"id":"a","needs":["b"]}`, "exec --items in.jsonl -- echo"},
	{"needs …, which can never be done first: …", `{"id":"a","needs":["b"]}` + "\n" + `{"id":"b","needs":["a"]}`, "exec --items in.jsonl -- echo"},
	{"… has no Batch API that is known", "x", "run in.jsonl -o out.jsonl --provider groq --model m --via batch-api"},
	{"… has no events", "", "plan --events in.jsonl"},
	{"the key was refused: …", "x", "run in.jsonl -o out.jsonl --provider openai-compatible --model m --base-url BASE/401"},
	{"the account's quota is spent: …", "x", "run in.jsonl -o out.jsonl --provider openai-compatible --model m --base-url BASE/402"},
	{"the base URL redirects, which is not followed: give the address it leads to", "x", "run in.jsonl -o out.jsonl --provider openai-compatible --model m --base-url BASE/301"},
	{"(attempts: …, throttled: …)", "x", "run in.jsonl -o out.jsonl --provider openai-compatible --model m --base-url BASE/500 --attempts 2"},
	{"no answer within …", "x", "run in.jsonl -o out.jsonl --provider openai-compatible --model m --base-url BASE/0 --attempts 1 --timeout 300ms"},
	{"answer is larger than allowed", "x", "run in.jsonl -o out.jsonl --provider openai-compatible --model m --base-url BASE/1"},
	{"the answer is not JSON", "x", "run in.jsonl -o out.jsonl --provider sim --model m --attempts 1 --schema schema.json"},
	{"is of another command, or of one that is run otherwise", "x", "exec --items in.jsonl -- true && exec --items in.jsonl -- false"},
	{"the command did not end in its time", "x", "exec --attempts 1 --timeout 300ms --items in.jsonl -- sleep 60"},
	{"exit status …", "x", "exec --attempts 1 --items in.jsonl -- false"},
	{"worker broke the protocol and was killed: it printed …", "x", "exec --attempts 1 --persistent --items in.jsonl -- cat"},
	{"the worker ends as soon as it starts: …", "x", "exec --attempts 1 --persistent --items in.jsonl -- false"},
}

// misbehaving is a server that answers each call by the status that its path begins with; 0 is never, 1 is without end.
func misbehaving(t *testing.T) (address string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _, _ := strings.Cut(r.URL.Path[1:], "/")
		status, err := strconv.Atoi(first)
		switch {
		case err != nil:
			t.Errorf("a call of %s", r.URL.Path)
		case status == 0:
			_, _ = io.Copy(io.Discard, r.Body) // else nobody sees that the client is gone
			<-r.Context().Done()
		case status == 1:
			w.Header().Set("Content-Length", "1000000000")
		default:
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTheMessagesOfTroubleshootingAreMet(t *testing.T) {
	explained, base := quoted(t), misbehaving(t)
	for _, one := range met {
		t.Run(one.message, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(explained, one.message) {
				t.Fatal("it is not explained")
			}
			dir := t.TempDir()
			for name, text := range map[string]string{"in.jsonl": one.input, "junk.jsonl": "junk\n", "schema.json": "{}"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var stderr bytes.Buffer
			failed := false
			for args := range strings.SplitSeq(strings.ReplaceAll(one.args, "BASE", base), " && ") {
				cmd := exec.CommandContext(ctx, "sluice", strings.Fields(args)...)
				cmd.Dir, cmd.Stderr, cmd.Env = dir, &stderr, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
				failed = cmd.Run() != nil
			}
			parts := strings.Split(one.message, gap)
			for i, part := range parts {
				parts[i] = regexp.QuoteMeta(part)
			}
			if !failed || !regexp.MustCompile(strings.Join(parts, ".*")).MatchString(stderr.String()) {
				t.Errorf("%s: failed %v: %s", one.args, failed, stderr.String())
			}
		})
	}
}

// The document has messages of providers in a table: what is said, and of which kind it is.
var foreign = regexp.MustCompile("(?m)^\\| `(.+?)` \\| `([a-z_]+)` \\|")

func TestTheMessagesOfProvidersAreOfTheKindThatIsSaid(t *testing.T) {
	rows := foreign.FindAllStringSubmatch(read(t, troubleshooting), -1)
	if len(rows) < 20 {
		t.Fatalf("%d messages of providers, want 20", len(rows))
	}
	for _, row := range rows {
		text, kind := strings.ReplaceAll(row[1], `\|`, "|"), row[2]
		var stdout, stderr bytes.Buffer
		if code := cli.Main(t.Context(), []string{"explain", "--json"}, strings.NewReader(text+"\n"), &stdout, &stderr); code != 0 {
			t.Fatalf("%s: %s", text, stderr.String())
		}
		var got struct{ Kind string }
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Kind != kind {
			t.Errorf("%s is %s, and not %s", text, got.Kind, kind)
		}
	}
}
