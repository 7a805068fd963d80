BEGIN TRANSACTION;
CREATE TABLE tasks (
                id INTEGER PRIMARY KEY, at REAL NOT NULL, provider TEXT NOT NULL,
                backend TEXT NOT NULL, model TEXT NOT NULL, method TEXT NOT NULL,
                type TEXT NOT NULL, complexity TEXT NOT NULL, size REAL NOT NULL,
                cost_usd TEXT, input INTEGER NOT NULL, output INTEGER NOT NULL,
                cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
                reasoning INTEGER NOT NULL, seconds REAL NOT NULL, state TEXT NOT NULL, evidence TEXT, failure TEXT, place TEXT, graded INTEGER NOT NULL DEFAULT 0);
INSERT INTO "tasks" VALUES(1,1.79499060021466398237e+09,'glm','moonshot','glm-4','acp','refactor','complex',249.0,'0.00102',800,90,200,0,10,1.367,'completed','claimed',NULL,'w-2gqyg@1794990598.848',0);
INSERT INTO "tasks" VALUES(2,1.79499060145550847055e+09,'glm','moonshot','glm-4','cli','refactor','complex',249.0,'0.00102',800,90,200,0,10,1.178,'completed','claimed',NULL,'w-hvutx@1794990600.278',0);
INSERT INTO "tasks" VALUES(3,1.7949906031574761867e+09,'glm','moonshot','glm-4','serve','refactor','complex',249.0,'0.00102',800,90,200,0,10,1.696,'completed','claimed',NULL,'w-ax7yj@1794990601.462',0);
INSERT INTO "tasks" VALUES(4,1.79499060317130804068e+09,'glm','moonshot','glm-4','api','refactor','complex',249.0,'0.00102',800,90,200,0,10,0.003,'completed','claimed',NULL,'w-g4wn2@1794990603.168',0);
INSERT INTO "tasks" VALUES(5,1.79499060336690282818e+09,'glm','moonshot','glm-4','agent','refactor','complex',249.0,'0.00102',800,90,200,0,10,0.171,'completed','claimed',NULL,'w-aqska@1794990603.196',0);
INSERT INTO "tasks" VALUES(6,1.79499060360006260873e+09,'glm','moonshot','glm-4','acp','format','complex',219.4,'0.00042',300,60,0,0,0,0.209,'completed','verified',NULL,'w-a9fzw@1794990603.391',0);
INSERT INTO "tasks" VALUES(7,1.79499060392423272127e+09,'glm','moonshot','glm-4','acp','format','complex',219.4,'0.00042',300,60,0,0,0,0.235,'completed','verified',NULL,'w-tmurd@1794990603.689',0);
INSERT INTO "tasks" VALUES(8,1.79499060411617255205e+09,'glm','moonshot','glm-4','acp','format','complex',219.4,'0.00042',300,60,0,0,0,0.185,'failed','refuted','verify_failed','w-ccddy@1794990603.932',0);
INSERT INTO "tasks" VALUES(9,1.79499060446128654478e+09,'glm','moonshot','glm-4','acp','format','complex',219.4,'0.00042',300,60,0,0,0,0.326,'completed','claimed',NULL,'w-jxbt9@1794990604.135',0);
INSERT INTO "tasks" VALUES(10,1.79499060457129859923e+09,'glm','moonshot','glm-4','acp','refactor','medium',185.3,'2.00002',2000000,10,0,0,0,0.103,'failed',NULL,'budget_exceeded','w-dz28d@1794990604.468',0);
INSERT INTO "tasks" VALUES(11,1.79499060469690489773e+09,'glm','moonshot','glm-4','acp','refactor','medium',155.7,'0.09516',95100,30,0,0,0,0.119,'completed','claimed',NULL,'w-m6cwr@1794990604.577',0);
INSERT INTO "tasks" VALUES(12,1.79499060472130489351e+09,'haiku','claude','claude-haiku','api','fix','simple',60.8,'0.00085',800,10,0,0,0,0.004,'completed','claimed',NULL,'w-dd4sv@1794990604.717',0);
INSERT INTO "tasks" VALUES(13,1.79499060533833312987e+09,'mine','local','small','acp','format','complex',327.5,'0.00028',200,40,0,0,0,0.19,'completed',NULL,NULL,'w-fru9v@1794990605.148',0);
INSERT INTO "tasks" VALUES(14,1.79499060542769408223e+09,'away','gone','away','acp','refactor','complex',249.0,'0.00014',100,20,0,0,0,0.069,'completed',NULL,NULL,'w-8pfrw@1794990605.359',0);
INSERT INTO "tasks" VALUES(15,1.79499062288970828056e+09,'away','gone','away','acp','refactor','complex',249.0,NULL,0,0,0,0,0,17.44,'failed',NULL,'provider_overloaded','w-shqqk@1794990605.450',0);
INSERT INTO "tasks" VALUES(16,1.79499062298439931864e+09,'glm','moonshot','glm-4','acp','refactor','complex',249.0,'0.00102',800,90,200,0,10,0.089,'completed','claimed',NULL,'w-kyqdy@1794990622.895',0);
INSERT INTO "tasks" VALUES(17,1.79499062328871560097e+09,'glm','moonshot','glm-4','acp','format','simple',64.9,'0.00028',200,40,0,0,0,0.27,'completed','claimed',NULL,'w-dw7dj@1794990623.019',0);
INSERT INTO "tasks" VALUES(18,1.79499062341132879254e+09,'glm','moonshot','glm-4','acp','format','simple',64.9,'0.00014',100,20,0,0,0,0.108,'failed',NULL,'permission_denied','w-87sh7@1794990623.304',0);
INSERT INTO "tasks" VALUES(19,1.79499062349112725256e+09,'glm','moonshot','glm-4','acp','test','medium',108.0,NULL,0,0,0,0,0,0.075,'cancelled',NULL,NULL,'w-wkapd@1794990623.417',0);
INSERT INTO "tasks" VALUES(20,1.79499062382677125929e+09,'glm','moonshot','glm-4','acp','format','simple',64.9,'0.00014',100,20,0,0,0,0.329,'cancelled',NULL,NULL,'w-vpegv@1794990623.498',0);
INSERT INTO "tasks" VALUES(21,1.79499062530985021594e+09,'glm','moonshot','glm-4','acp','format','simple',64.9,'0.00028',200,40,0,0,0,1.478,'completed','claimed',NULL,'w-ztafs@1794990623.832',0);
INSERT INTO "tasks" VALUES(22,1.7949906253978579044e+09,'actor','actor','small','agent','format','medium',133.6,NULL,0,0,0,0,0,0.079,'completed','claimed',NULL,'w-aazyj@1794990625.319',0);
INSERT INTO "tasks" VALUES(23,1794990625.54824,'actor','actor','small','agent','implement','complex',250.7,'0.25',10,5,0,0,0,0.087,'completed','claimed',NULL,'w-qk8vs@1794990625.462',0);
INSERT INTO "tasks" VALUES(24,1.7949906256541011333e+09,'actor','actor','small','agent','fix','medium',128.9,NULL,0,0,0,0,0,0.08,'failed',NULL,'worker_crashed','w-4mx3x@1794990625.574',0);
INSERT INTO "tasks" VALUES(25,1.79499062583453512188e+09,'glm','moonshot','glm-4','agent','documentation','trivial',39.2,'0.00028',200,40,0,0,0,0.176,'completed','claimed',NULL,'w-3namm@1794990625.659',0);
INSERT INTO "tasks" VALUES(26,1.79499062693302488327e+09,'glm','moonshot','glm-4','acp','format','medium',133.6,'0.00042',300,60,0,0,0,1.021,'completed','claimed',NULL,'w-fya64@1794990625.912',0);
INSERT INTO "tasks" VALUES(27,1.79499062696177434919e+09,'spare','deepseek','deepseek-coder','acp','format','medium',133.6,'0.00042',300,60,0,0,0,1.058,'completed','claimed',NULL,'w-2m36k@1794990625.903',0);
INSERT INTO "tasks" VALUES(28,1.79499062721608781817e+09,'glm','moonshot','glm-4','acp','format','medium',133.6,'0.00042',300,60,0,0,0,1.291,'completed','claimed',NULL,'w-h2y92@1794990625.925',0);
INSERT INTO "tasks" VALUES(29,1.79499062722032260894e+09,'glm','moonshot','glm-4','acp','format','simple',68.4,'0.00028',200,40,0,0,0,1.28,'failed','refuted','verify_failed','w-966vg@1794990625.940',0);
INSERT INTO "tasks" VALUES(30,1.79499062735250544545e+09,'haiku','claude','claude-haiku','acp','documentation','medium',110.4,'0.0004',200,40,0,0,0,1.399,'completed','claimed',NULL,'w-emrqa@1794990625.953',0);
INSERT INTO "tasks" VALUES(31,1.79499062776085329057e+09,'haiku','claude','claude-haiku','acp','documentation','simple',76.1,'0.0004',200,40,0,0,0,0.392,'completed','verified',NULL,'w-e8zwj@1794990627.369',0);
INSERT INTO "tasks" VALUES(32,1.79499062806148266787e+09,'spare','deepseek','deepseek-coder','acp','format','simple',68.4,'0.00028',200,40,0,0,0,0.267,'completed','verified',NULL,'w-vm5se@1794990627.794',0);
INSERT INTO "tasks" VALUES(33,1.7949906284959893227e+09,'glm','moonshot','glm-4','acp','test','medium',108.0,NULL,0,0,0,0,0,0.242,'cancelled',NULL,NULL,'w-txxew@1794990628.254',0);
INSERT INTO "tasks" VALUES(34,1.79499062914572739607e+09,'glm','moonshot','glm-4','acp','format','medium',96.1,'0.00014',100,20,0,0,0,0.338,'completed','verified',NULL,'w-dtxqe@1794990628.808',1);
INSERT INTO "tasks" VALUES(35,1794990629.29334,'glm','moonshot','glm-4','acp','format','medium',96.1,'0.00014',100,20,0,0,0,0.479,'completed','verified',NULL,'w-vjfwu@1794990628.814',1);
INSERT INTO "tasks" VALUES(36,1.79499062977706623075e+09,'glm','moonshot','glm-4','acp','documentation','simple',63.5,'0.00028',200,40,0,0,0,0.788,'completed','verified',NULL,'w-5ffss@1794990628.989',1);
INSERT INTO "tasks" VALUES(37,1.79499062978822517388e+09,'glm','moonshot','glm-4','acp','documentation','simple',63.5,'0.00028',200,40,0,0,0,0.799,'completed','verified',NULL,'w-744y2@1794990628.989',1);
INSERT INTO "tasks" VALUES(38,1794990630.971,'glm','moonshot','glm-4','serve','format','medium',96.1,'0.00014',100,20,0,0,0,3.72921985000175482127e-01,'completed','verified',NULL,'eval-31cb382792b7a13a4db2e399',1);
INSERT INTO "tasks" VALUES(39,1794990630.988,'glm','moonshot','glm-4','serve','format','medium',96.1,'0.00014',100,20,0,0,0,0.37753492200045,'completed','verified',NULL,'eval-3e246838db8b776525a8a708',1);
INSERT INTO "tasks" VALUES(40,1794990631.234,'glm','moonshot','glm-4','serve','documentation','simple',63.5,'0.00028',200,40,0,0,0,5.17787773000236484222e-01,'completed','verified',NULL,'eval-42804666c89465121abfac62',1);
INSERT INTO "tasks" VALUES(41,1794990631.27,'glm','moonshot','glm-4','serve','documentation','simple',63.5,'0.00028',200,40,0,0,0,5.54829084999255428556e-01,'completed','verified',NULL,'eval-11620681ad7d64e862ca287a',1);
INSERT INTO "tasks" VALUES(42,1.79499063411956787106e+09,'glm','moonshot','glm-4','acp','format','medium',96.1,'0.00014',100,20,0,0,0,0.383,'completed','verified',NULL,'w-buf4j@1794990633.737',1);
INSERT INTO "tasks" VALUES(43,1.79499063423995518684e+09,'glm','moonshot','glm-4','acp','format','medium',96.1,'0.00014',100,20,0,0,0,0.472,'completed','verified',NULL,'w-vdxey@1794990633.768',1);
INSERT INTO "tasks" VALUES(44,1.79499063472524309154e+09,'glm','moonshot','glm-4','acp','documentation','simple',63.5,'0.00028',200,40,0,0,0,0.874,'completed','verified',NULL,'w-dmkfg@1794990633.852',1);
INSERT INTO "tasks" VALUES(45,1.79499063473324680329e+09,'glm','moonshot','glm-4','acp','documentation','simple',63.5,'0.00028',200,40,0,0,0,0.884,'completed','verified',NULL,'w-qek4k@1794990633.850',1);
INSERT INTO "tasks" VALUES(46,1794990635.971,'glm','moonshot','glm-4','serve','format','medium',96.1,'0.00014',100,20,0,0,0,3.79987524000171106308e-01,'completed','verified',NULL,'eval-7dd141a140352973362bb86b',1);
INSERT INTO "tasks" VALUES(47,1794990635.989,'glm','moonshot','glm-4','serve','format','medium',96.1,'0.00014',100,20,0,0,0,4.26822748000631690956e-01,'completed','verified',NULL,'eval-0e371cce32ad2153e49d9971',1);
INSERT INTO "tasks" VALUES(48,1794990636.242,'glm','moonshot','glm-4','serve','documentation','simple',63.5,'0.00028',200,40,0,0,0,5.18423327999698813073e-01,'completed','verified',NULL,'eval-ffe5ea06c8f764b5f9d6f79d',1);
INSERT INTO "tasks" VALUES(49,1794990636.284,'glm','moonshot','glm-4','serve','documentation','simple',63.5,'0.00028',200,40,0,0,0,5.74201481000272906385e-01,'completed','verified',NULL,'eval-c2ff1282e96559d5fb7da3ad',1);
CREATE UNIQUE INDEX tasks_place ON tasks (place);
COMMIT;
PRAGMA user_version = 3;
