// A real OpenID Connect provider (oidc-provider), for the tests: node provider.mjs CERT KEY CLIENT. Prints its issuer.
import { readFileSync } from 'node:fs';
import https from 'node:https';
import Provider from 'oidc-provider';

const [cert, key] = process.argv.slice(2, 4).map((path) => readFileSync(path));

const people = { ann: ['ml'], eve: ['others'] };
const server = https.createServer({ cert, key });
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `https://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [{
    client_id: process.argv[4], application_type: 'native', token_endpoint_auth_method: 'none',
    grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'], redirect_uris: [], response_types: [],
  }],
  claims: { openid: ['sub'], profile: ['preferred_username', 'groups'] },
  conformIdTokenClaims: false,
  features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
  findAccount: (_, id) => people[id] && {
    accountId: id, claims: async () => ({ sub: id, preferred_username: id, groups: people[id] }),
  },
});
provider.on('server_error', (_, error) => console.error(error));
server.on('request', provider.callback());
console.log(issuer);
