// express-rate-limit before a back end: express.js PORT BACKEND legacy|draft-6|draft-7|draft-8|bare
const http = require('http')
const express = require('express')
const { rateLimit } = require('express-rate-limit')

const [port, back, headers] = process.argv.slice(2)
const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity })
const app = express()
app.use(rateLimit({
  windowMs: 10_000, limit: 100,
  legacyHeaders: headers === 'legacy',
  standardHeaders: headers.startsWith('draft') ? headers : false,
}))
app.use((req, res) => {
  const forward = http.request({ port: back, host: '127.0.0.1', path: req.url, method: req.method, headers: req.headers, agent }, (answer) => {
    res.writeHead(answer.statusCode, answer.headers)
    answer.pipe(res)
  })
  forward.on('error', () => res.status(502).end())
  req.pipe(forward)
})
app.listen(port, '127.0.0.1')
