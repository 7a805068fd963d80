BEGIN TRANSACTION;
CREATE TABLE events (
                seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, worker TEXT NOT NULL,
                type TEXT NOT NULL, body TEXT NOT NULL);
INSERT INTO "events" VALUES(1,1.79499065114774107934e+09,'w-rxymy','WorkerSpawned','{"type":"WorkerSpawned","task":"wait for ever","cwd":"/tmp/goent-v01/killed","provider":"glm","backend":"moonshot","model":"glm-4","method":"agent","reason":"asked for","permissions":"edit","isolation":"shared","task_type":"test","complexity":"medium","size":108.0}');
INSERT INTO "events" VALUES(2,1.79499065121678233144e+09,'w-pzw2z','WorkerSpawned','{"type":"WorkerSpawned","task":"try the shell","cwd":"/tmp/goent-v01/killed","provider":"glm","backend":"moonshot","model":"glm-4","method":"agent","reason":"asked for","permissions":"edit","isolation":"shared","task_type":"format","complexity":"simple","size":86.5}');
INSERT INTO "events" VALUES(3,1.79499065131625366214e+09,'w-rxymy','TurnStarted','{"type":"TurnStarted","turn":1,"prompt":"wait for ever"}');
INSERT INTO "events" VALUES(4,1.7949906513162634373e+09,'w-rxymy','SessionOpened','{"type":"SessionOpened","token":"agent-f553f38f64de"}');
INSERT INTO "events" VALUES(5,1.79499065138018822672e+09,'w-pzw2z','TurnStarted','{"type":"TurnStarted","turn":1,"prompt":"try the shell"}');
INSERT INTO "events" VALUES(6,1.79499065138019371027e+09,'w-pzw2z','SessionOpened','{"type":"SessionOpened","token":"agent-a87836c993cb"}');
INSERT INTO "events" VALUES(7,1.79499065138979482653e+09,'w-pzw2z','UsageReported','{"type":"UsageReported","provider":"glm","model":"glm-4","usage":{"input":100,"output":20,"cache_read":0,"cache_write":0,"reasoning":0},"cost_usd":"0.00014","source":"gateway"}');
INSERT INTO "events" VALUES(8,1.79499065139165425294e+09,'w-pzw2z','ToolCall','{"type":"ToolCall","id":"call_110_0","tool":"bash","status":"pending","title":"touch never.txt","detail":"touch never.txt","input":{"command":"touch never.txt"},"command":{"command":"touch never.txt","exit":null}}');
INSERT INTO "events" VALUES(9,1.79499065139212870601e+09,'w-pzw2z','PermissionAsked','{"type":"PermissionAsked","id":"p1","tool":"bash","detail":"touch never.txt","options":[{"id":"allow_once","label":"Allow once"},{"id":"allow_always","label":"Always allow"},{"id":"reject","label":"Reject"}]}');
CREATE INDEX events_of_worker ON events (worker, seq);
CREATE INDEX spawned ON events (seq, worker) WHERE type = 'WorkerSpawned';
CREATE INDEX closed ON events (worker) WHERE type = 'WorkerClosed';
CREATE INDEX swarms ON events (seq, worker) WHERE type = 'SwarmSpawned';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',9);
COMMIT;
PRAGMA user_version = 2;
