BEGIN TRANSACTION;
CREATE TABLE health (
                backend TEXT NOT NULL, model TEXT NOT NULL, account TEXT NOT NULL,
                state TEXT NOT NULL, failures INTEGER NOT NULL, since REAL NOT NULL, until REAL,
                told INTEGER NOT NULL, trial_until REAL, reason TEXT NOT NULL,
                PRIMARY KEY (backend, model, account)) WITHOUT ROWID;
INSERT INTO "health" VALUES('actor','small','direct','healthy',0,1.79499062539771056176e+09,NULL,0,NULL,'');
INSERT INTO "health" VALUES('claude','claude-haiku','e63e581802c0','healthy',0,1.79499060472081661222e+09,NULL,0,NULL,'');
INSERT INTO "health" VALUES('deepseek','deepseek-coder','05682d13ba16','healthy',0,1.79499060531014418594e+09,NULL,0,NULL,'');
INSERT INTO "health" VALUES('gone','away','c562b997d98d','down',5,1.79499062287302970884e+09,1.79499064287302970881e+09,0,NULL,'backend ''gone'' answered 503: scripted failure');
INSERT INTO "health" VALUES('local','small','direct','no_credit',1,1.79499060524865412715e+09,1.79499120524865412714e+09,0,NULL,'Insufficient balance (HTTP 402)');
INSERT INTO "health" VALUES('moonshot','glm-4','0f7590198c10','healthy',0,1.7949906001554689407e+09,NULL,0,NULL,'');
COMMIT;
PRAGMA user_version = 1;
