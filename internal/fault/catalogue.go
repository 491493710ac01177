package fault

import "slices"

// Code is the stable code of a kind of error.
type Code string

// Codes of errors. The catalogue has their causes.
const (
	Usage       Code = "E001"
	Value       Code = "E002"
	Conflict    Code = "E003"
	Missing     Code = "E004"
	Settings    Code = "E010"
	Provider    Code = "E011"
	Key         Code = "E012"
	Limits      Code = "E013"
	Price       Code = "E014"
	Input       Code = "E020"
	Changed     Code = "E021"
	InUse       Code = "E022"
	Output      Code = "E023"
	File        Code = "E024"
	Disk        Code = "E025"
	OpenFiles   Code = "E026"
	State       Code = "E027"
	KeyRejected Code = "E030"
	Quota       Code = "E031"
	Unreachable Code = "E032"
	SameError   Code = "E033"
	Upstreams   Code = "E034"
	Rejected    Code = "E035"
	Cap         Code = "E040"
	Bounds      Code = "E041"
	Threshold   Code = "E042"
	Batches     Code = "E050"
	Pending     Code = "E051"
	Redis       Code = "E060"
	RedisURL    Code = "E061"
	Job         Code = "E062"
	Program     Code = "E070"
	Blocked     Code = "E071"
	Interrupted Code = "E090"
	Failed      Code = "E099"
)

// Entry is the description of a code.
type Entry struct {
	Code  Code
	Exit  int
	Cause string
	Fix   string // what to do, if the error has no hint of its own
}

var catalogue = []Entry{
	{Usage, ExitUsage, "an unknown command, flag or argument", "see sluice --help"},
	{Value, ExitUsage, "an invalid value of a flag", "correct the value: sluice COMMAND --help describes the flag"},
	{Conflict, ExitUsage, "flags that cannot be combined, or a flag that needs another", "omit one of the flags, or add the missing flag"},
	{Missing, ExitUsage, "a required flag, argument or input is missing", "add the flag or argument"},
	{Settings, ExitUsage, "an invalid settings file", "correct the field: sluice serve --config FILE --check checks the file"},
	{Provider, ExitUsage, "the provider or its address is unknown", "set --provider, or --base-url for an OpenAI-compatible server"},
	{Key, ExitUsage, "no API key, or a malformed API key", "export the variable of the key, or read it with --env-file"},
	{Limits, ExitUsage, "no limit is known", "set --rpm and --tpm, or measure limits with sluice find --model M"},
	{Price, ExitUsage, "a price is unknown", "set --price IN/OUT"},
	{Input, ExitUsage, "an invalid item in the input", "correct the item in the named line"},
	{Changed, ExitUsage, "an item differs from the recorded item", "add --redo changed, or keep recorded results with --redo none"},
	{InUse, ExitUsage, "another run uses the output", "wait for that run, or use another output"},
	{Output, ExitUsage, "the file is not an output of Sluice, or belongs to another input", "use another output"},
	{File, ExitUsage, "a file cannot be read or written", "name a file that exists, or a directory that you can write to"},
	{Disk, ExitFailed, "the disk is full, or a file cannot be written any more", "free space, then run the same command again"},
	{OpenFiles, ExitFailed, "the process may not open more files", "raise the limit with ulimit -n 4096, or lower --concurrency"},
	{State, ExitFailed, "no run was found", "name the output of a run: sluice status OUT.jsonl"},
	{KeyRejected, ExitFailed, "the provider rejected the key", "check the key, then run the same command again"},
	{Quota, ExitFailed, "the account has no credit", "add credit or raise the spend limit, then run the same command again"},
	{Unreachable, ExitFailed, "the provider does not respond", "check the network and --base-url, then run the same command again"},
	{SameError, ExitFailed, "the last items all failed with the same error", "correct the cause, then run the same command again"},
	{Upstreams, ExitFailed, "no upstream is left", "correct the cause for each upstream, then run the same command again"},
	{Rejected, ExitFailed, "the provider rejected the request", "read the message with sluice explain"},
	{Cap, ExitCap, "a cap or deadline stopped the run", "run the same command again, which has a full new cap"},
	{Bounds, ExitThreshold, "the plan exceeds --max-cost or --deadline", "plan fewer requests, or raise the bound"},
	{Threshold, ExitThreshold, "a measurement missed its threshold", "read the events with sluice report --events FILE"},
	{Batches, ExitFailed, "batches are lost, or the Batch API refused them", "see sluice status OUT.jsonl"},
	{Pending, ExitUsage, "batches of an earlier run are pending", "collect them with the same run command, or cancel them with --cancel"},
	{Redis, ExitFailed, "Redis does not respond", "check the server and the network"},
	{RedisURL, ExitUsage, "invalid settings of Redis", "correct the URL of --redis, or the password in its variable"},
	{Job, ExitUsage, "the run at Redis belongs to another process, input or version", "use another output, and the same release on all hosts"},
	{Program, ExitFailed, "a command cannot be started", "check that the program exists and is executable"},
	{Blocked, ExitItems, "items that others depend on failed", "correct their cause, then run the same command again"},
	{Interrupted, ExitInterrupted, "a signal stopped the command", "run the same command again"},
	{Failed, ExitFailed, "another error", ""},
}

// Catalogue returns all codes.
func Catalogue() []Entry { return slices.Clone(catalogue) }

// Entry returns the description of a code.
func (c Code) Entry() Entry {
	for _, e := range catalogue {
		if e.Code == c {
			return e
		}
	}
	panic("fault: " + c + " is not in the catalogue")
}

// Exit returns the exit code.
func (c Code) Exit() int { return c.Entry().Exit }
