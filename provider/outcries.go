package provider

// outcries are the sentences with which providers and agents refuse a call, where no name and no prefix says that they
// are an error. They are anchored at the sentence's beginning, in lower case with straight quotes; * is any text. That
// a sentence is here says only that it is an error: which one, the rules say.
var outcries = [...]string{
	// plans: Claude Code, Codex, Copilot, Gemini CLI
	"you've hit your *", "you have hit your *", "you hit your *limit*", "you've reached your *limit*", "you have reached your *",
	"you've reached the *limit*", "you have reached the *limit*", "you've reached your specified*", "you've hit the *limit*",
	"you've hit a rate limit*", "you have hit a rate limit*", "sorry, you've hit *", "sorry, you have *exceeded*",
	"sorry, you've exceeded*", "sorry, your request was rate-limited*", "sorry, you have been rate-limited*",
	"sorry, your request failed*", "you've exceeded your *", "you have exceeded your *", "you exceeded your *", "you've exhausted your*",
	"you have exhausted your *", "you've used all *", "you have used all *", "you've used up *", "you have used up *",
	"you are out of *", "you're out of *", "you have run out of *", "you've run out of *", "you have no *left*",
	"claude ai usage limit reached*", "claude usage limit reached*", "usage limit reached*", "usage limit has been reached*",
	"the usage limit has been reached*", "5-hour limit reached*", "hour limit reached*", "weekly limit reached*",
	"session limit reached*", "daily limit reached*", "monthly limit reached*", "opus weekly limit reached*", "opus limit reached*",
	"sonnet limit reached*", "limit reached", "limit reached *resets*", "approaching usage limit reached*", "your limit will reset*",
	"your quota will reset*", "limits will reset *", "wait * for your limit to reset*", "out of call volume quota*",
	"daily quota exceeded*", "daily quota limit*", "quota exceeded for *", "quota exceeded", "quota limit reached*",
	"your monthly *limit*reached*", "insufficient quota*", "insufficient_quota*", "free tier limit reached*",
	"free tier quota *exceeded*", "reached the end of your *", "your account has reached*", "your account reached*",

	// money
	"your credit balance is too low*", "credit balance is too low*", "credit balance too low*", "insufficient balance*",
	"insufficient credit*", "insufficient funds*", "your account is not active*", "billing hard limit*", "payment required*",
	"this request requires more credits*", "no credits*", "not enough credits*", "your prepayment credits are depleted*",
	"your team *used all available credits*", "key limit exceeded*", "this organization has been disabled*",

	// rates
	"rate limit reached*", "rate limit exceeded*", "rate limit is exceeded*", "rate limit hit*", "rate limited*",
	"rate-limited*", "request rate limited*", "request was throttled*", "request was rate limited*", "the request was throttled*",
	"too many requests*", "too many tokens*", "too many concurrent*", "request too large for *", "requests to the *have exceeded*",
	"your requests to *have exceeded*", "this request would exceed*rate limit*", "number of request*has exceeded*",
	"number of concurrent*exceeded*", "resource exhausted*", "resource has been exhausted*", "requests rate limit exceeded*",
	"you have been rate limited*", "you are being rate limited*", "you are rate limited*", "your account is rate limited*",
	"api rate limit *", "quota exceeded *per*", "exceeded retry limit*", "server is temporarily limiting requests*",
	"request rate increased too quickly*", "slow down*", "please slow down*", "tokens per minute limit exceeded*",
	"max * concurrency*", "account reached max *", "provider returned error*", "requests per *limit*exceeded*",

	// capacity
	"overloaded", "overloaded.*", "overloaded *", "server overloaded*", "service overloaded*", "server is overloaded*",
	"the server is overloaded*", "the model is overloaded*", "that model is currently overloaded*", "the engine is currently overloaded*",
	"the model is currently overloaded*", "our servers are currently overloaded*", "selected model is at capacity*",
	"no capacity available*", "service tier capacity exceeded*", "this model is currently experiencing*", "the system is currently experiencing*",
	"we're currently experiencing*", "we are currently experiencing*", "model is overloaded*", "model overloaded*", "service unavailable*",
	"the service is currently unavailable*", "the service is temporarily *", "service temporarily unavailable*", "server is busy*",
	"the server is busy*", "repeated 529*", "model is at capacity*", "high demand*", "the model * is currently overloaded*",
	"model * is overloaded*", "upstream is at capacity*", "server at capacity*",

	// size and content
	"prompt is too long*", "input is too long*", "this model's maximum context length*", "input length and *exceed*",
	"your input exceeds*", "the input token count*exceeds*", "request too large*", "context length exceeded*",
	"context window exceeded*", "conversation too long*", "the prompt is too long*", "input exceeds*", "maximum context length*",
	"context window *exceeded*", "the request exceeds *context*", "codex ran out of room in the model's context window*",
	"output blocked by content filter*", "blocked: candidate*", "blocked: prompt*", "block_reason: *", "the response was filtered*", "content filter*", "your request was flagged*",
	"this content was flagged*", "your prompt was flagged*", "the response was blocked*",

	// keys
	"incorrect api key*", "invalid api key*", "invalid x-api-key*", "api key not valid*", "invalid bearer token*", "please run /login*",
	"oauth token *expired*", "oauth token *revoked*", "oauth authentication is currently not supported*", "your api key *", "api key expired*", "api key is *",
	"invalid authentication*", "authentication failed*", "unauthorized*", "not logged in*", "missing api key*", "no api key*",
	"the security token included in the request is *", "unable to locate credentials*", "access denied*", "permission denied*on resource*",
	"country, region, or territory not supported*", "login expired*", "your session has expired*", "token expired*", "your access token could not be refreshed*",
	"missing authentication*", "user not found*", "no auth credentials*", "your organization has been disabled*",

	// the network, timeouts, servers
	"connection error*", "connection refused*", "connection reset*", "connection closed*", "connection lost*", "connection timed out*",
	"connection aborted*", "connection terminated*", "connect econn*", "connect etimedout*", "connect timeout*", "read econnreset*",
	"read timed out*", "api timeout*", "request exceeded time limit*", "read timeout*", "connection timeout*", "request timed out*", "the request timed out*", "request timeout*", "the operation timed out*", "operation timed out*",
	"the operation was aborted*timeout*", "timeout of *exceeded*", "timed out*", "timeout awaiting*", "timeout waiting*", "deadline exceeded*",
	"context deadline exceeded*", "net/http: *", "dial tcp *", "fetch failed*", "failed to fetch*", "network error*", "network request failed*",
	"socket hang up*", "socket closed*", "getaddrinfo *", "other side closed*", "unexpected eof*", "eof", "no such host*", "no route to host*",
	"network is unreachable*", "host is unreachable*", "could not resolve host*", "name or service not known*", "temporary failure in name resolution*",
	"remote end closed*", "server disconnected*", "peer closed connection*", "broken pipe*", "stream disconnected before completion*",
	"stream error*", "error sending request*", "error decoding response body*", "tls handshake*", "tls: *", "x509: *", "certificate verify failed*",
	"certificate has expired*", "self-signed certificate*", "self signed certificate*", "unable to verify the first certificate*",
	"unable to get local issuer certificate*", "ssl: *", "ssl_error*", "ssl connect error*", "net::err_*", "upstream connect error*",
	"upstream request timeout*", "stream idle timeout*", "idle timeout waiting*", "internal server error*", "an internal error has occurred*",
	"an internal error occurred*", "bad gateway*", "gateway time*", "the server had an error*", "server error*", "an error occurred while processing*",
	"operation was aborted due to timeout*", "http2: *", "client.timeout *", "max retries exceeded with url*", "connection to * failed*",
	"empty reply from server*", "connection was closed*", "the connection was *", "premature close*", "the read operation timed out*",
	"attempt * failed*", "retrying in *", "no response from *", "request failed *", "request failed:*", "response stalled*", "proxyconnect *", "lookup *no such host*",
	"read tcp *", "write tcp *", "post \"http*",

	// Spanish, French, German, Portuguese, Italian, Chinese, Japanese, Korean: the sentences of plans, translated
	"has alcanzado *límite*", "has llegado *límite*", "se alcanzó *límite*", "se ha alcanzado *límite*", "límite de *alcanzado*",
	"ha alcanzado *límite*", "alcanzaste *límite*", "llegaste *límite*", "demasiadas solicitudes*", "has superado *límite*", "has agotado *",
	"vous avez atteint *limite*", "tu as atteint *limite*", "limite d'utilisation*atteinte*", "limite de *atteinte*", "vous avez dépassé *",
	"trop de requêtes*", "sie haben *limit*erreicht*", "du hast *limit*erreicht*", "limit *erreicht*", "nutzungslimit erreicht*",
	"sie haben ihr*limit*", "zu viele anfragen*", "você atingiu *limite*", "limite de *atingido*", "limite de *excedido*", "muitas solicitações*",
	"você excedeu *", "hai raggiunto *limite*", "troppe richieste*", "limite di *raggiunto*",
	"*已达到*限*", "*已达*上限*", "*达到*使用上限*", "*达到*限制*", "*额度已*用*", "*配额已*", "*请求过于频繁*", "*请求过多*", "*余额不足*", "*超出*配额*", "*超过*限制*",
	"*達到*上限*", "*已達*上限*", "*上限に達しました*", "*制限に達しました*", "*上限に達し*", "*制限に達し*", "*リクエストが多すぎ*", "*한도에 도달*", "*요청이 너무 많*", "*访问量过大*", "*并发*过高*", "*速率限制*",
}
